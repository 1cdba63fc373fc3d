"""Opens the images of a conversation for an engine in this process."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

from judgekit.errors import JudgeRejected, RolloutError
from judgekit.execution.threads import in_own_thread
from judgekit.judges.base import Piece

_MOST_PIXELS = 50_000_000
"""Of one prompt's images together: some kilobytes can be gigabytes of pixels."""
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")


async def open_images(pieces: Sequence[Piece]) -> list[Any]:
    """Return PIL's images of *pieces*, in RGB.

    Raises RolloutError if one of the rollout's own cannot be opened, JudgeRejected for one of the task's.
    """
    images: list[Any] = []
    left = _MOST_PIXELS
    for piece in pieces:
        try:
            image = await in_own_thread(_opened, piece.image, left)
        except Exception as error:
            kind = RolloutError if piece.max_tokens is not None else JudgeRejected
            raise kind(f"an image cannot be opened: {type(error).__name__}: {error}") from None
        left -= image.width * image.height
        images.append(image)
    return images


def _opened(url: str, most_pixels: int) -> Any:
    """Read a data URL. An image is shown upright, and what is transparent in it on white, as vLLM's server shows it."""
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])), formats=_FORMATS) as image:
        if image.width * image.height > most_pixels:
            size = f"{image.width} × {image.height}"
            raise ValueError(f"with its {size} pixels, the prompt's images have more than {_MOST_PIXELS}")
        upright = ImageOps.exif_transpose(image)
        if not upright.has_transparency_data:
            return upright.convert("RGB")
        shown = Image.new("RGB", upright.size, "white")
        layer = upright.convert("RGBA")
        shown.paste(layer, mask=layer)
        return shown
