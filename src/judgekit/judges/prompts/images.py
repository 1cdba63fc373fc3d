"""Images in a conversation, for judges that see.

An image is data as a rollout's text is: its address may be an attacker's. Only data URLs of known image formats are passed on
by default, and nothing but the URL of a part: other keys could name files, or entries of a server's cache.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, get_args

from msgspec import Struct

from judgekit.errors import ConfigError
from judgekit.judges.base import Piece, Turn

Images = Literal["none", "data", "any"]
"""What a judge is shown: no images, those that come as data, or also those at an http(s) address, which its server fetches."""

ImageData = Literal["none", "data"]
"""As `Images`, for engines that fetch nothing."""

MOST_CHARS = 20 << 20
"""Longest data URL that is passed on."""

_KEPT_CHARS = 1 << 20
"""Longest data URL that is remembered: an image of a prompt is looked at once for its group."""

IMAGE_TAGS = ("<img>", "</img>")
"""HTML for judges of texts, and where an image is or what file it is in for some models that see."""

_DATA = re.compile(r"data:image/[a-z0-9.+-]{1,32};base64,", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[\x21-\x7e]{1,4096}")
_KINDS = ("image_url", "input_image", "image")
_KEYS = {"type", "image_url", "image", "source", "detail", "uuid"}
_UNUSABLE = "an image that is neither a data URL of PNG, JPEG, GIF or WebP nor an http address"


class Image(Struct, frozen=True):
    """An image that a judge is shown."""

    url: str


def images_of(judge: Any) -> Images:
    """Return which images *judge* is shown: what its `images` says, and none where it says nothing."""
    said: Images = getattr(judge, "images", "none")
    return said if said in get_args(Images) else "none"


def checked(images: Any) -> Images:
    """Return the setting. Raises ConfigError for another value."""
    if images not in get_args(Images):
        raise ConfigError(f"images is none, data or any, not {images!r}")
    return images  # type: ignore[no-any-return]


def checked_data(images: Any) -> ImageData:
    """Return the setting of an engine that fetches nothing. Raises ConfigError for another value."""
    if images not in get_args(ImageData):
        raise ConfigError(f"images is none or data for an engine that is not asked over HTTP, not {images!r}")
    return images  # type: ignore[no-any-return]


def image_in(block: Any, images: Images) -> Image | str | None:
    """Return the image of a content block, or what it is that cannot be shown; None if the block is no image.

    Reads OpenAI's `image_url` and `input_image`, Anthropic's `source`, and `{"type": "image", "image": …}` with a URL, bytes
    or a mapping with `bytes`, as data sets have it.
    """
    if images == "none" or not isinstance(block, Mapping):
        return None
    if block.get("type") not in _KINDS or not block.keys() <= _KEYS:
        return None
    given = block.get("image_url", block.get("image", block.get("source")))
    if isinstance(given, Mapping):
        if given.get("type") == "base64" and isinstance(given.get("data"), str):
            given = f"data:image/x;base64,{given['data']}"
        else:
            given = given.get("url", given.get("bytes"))
    if isinstance(given, bytes) and len(given) < MOST_CHARS:
        given = f"data:image/x;base64,{base64.b64encode(given).decode()}"
    if not isinstance(given, str):
        return _UNUSABLE
    if _ADDRESS.fullmatch(given):
        return (
            Image(given)
            if images == "any"
            else "an image at an address, which is shown with images: any only"
        )
    if len(given) <= _KEPT_CHARS:
        url = _kept_url(given)
    else:
        url = _data_url(given) if len(given) <= MOST_CHARS else None
    return Image(url) if url is not None else _UNUSABLE


def _data_url(text: str) -> str | None:
    """Return a data URL whose type is what its bytes are; None where they are no known image."""
    head = _DATA.match(text)
    if head is None:
        return None
    try:
        data = base64.b64decode(text[head.end() :], validate=True)
    except ValueError:  # binascii's is one
        return None
    kind = _kind(data)
    return f"data:image/{kind};base64,{text[head.end() :]}" if kind is not None else None


_kept_url = lru_cache(maxsize=32)(_data_url)


def _kind(data: bytes) -> str | None:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if data.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    return "webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


DOT = Image(
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAKklEQVR42mNwaDhAU8QwasGoBaMWjFowasGoBaMWjF"
    "owasGoBaMWDBULAC3AAFvHRxC+AAAAAElFTkSuQmCC"
)
"""A small image to ask with whether a server takes any."""

SHOWN = (Turn("user", (Piece("What is this?"), Piece("", trusted=False, image=DOT.url))),)
"""A question about an image, to find out whether a model sees."""
