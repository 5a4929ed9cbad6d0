"""The build itself: sanitizers over arbitrary input, and an install where there is no compiler."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.skipif(not (shutil.which("cmake") and shutil.which("c++")), reason="needs cmake and a C++ compiler")
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    """AddressSanitizer and UndefinedBehaviorSanitizer over every kernel on every instruction set."""
    options = ["-DLACONIC_SANITIZE=ON", "-DLACONIC_FUZZ=ON", "-DCMAKE_BUILD_TYPE=None"]
    subprocess.run(["cmake", "-S", ROOT, "-B", tmp_path, *options], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path, "--parallel"], check=True, capture_output=True)
    done = subprocess.run([tmp_path / "fuzz", "2000", "7"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "2000 inputs" in done.stdout


ARM, EMULATOR = (
    shutil.which("aarch64-linux-gnu-g++"),
    shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64"),
)


@pytest.mark.skipif(not (shutil.which("cmake") and ARM and EMULATOR), reason="needs a cross compiler and qemu-user")
def test_neon_writes_the_bytes_of_plain_code(tmp_path: Path) -> None:
    """The fuzz target for 64-bit ARM, emulated: it compares what NEON and plain C++ write."""
    target = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", f"-DCMAKE_CXX_COMPILER={ARM}"]
    options = ["-DLACONIC_FUZZ=ON", "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_EXE_LINKER_FLAGS=-static"]
    subprocess.run(["cmake", "-S", ROOT, "-B", tmp_path, *target, *options], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path, "--parallel"], check=True, capture_output=True)
    done = subprocess.run([str(EMULATOR), tmp_path / "fuzz", "300", "7"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "300 inputs" in done.stdout


def test_install_without_a_compiler(tmp_path: Path) -> None:
    """The wheel is pure Python, and holds no extension."""
    bare = tmp_path / "bin"
    bare.mkdir()
    for tool in ("sh", "env", "uname"):
        found = shutil.which(tool)
        assert found
        (bare / tool).symlink_to(found)
    environment = {**os.environ, "PATH": str(bare), "CXX": "/nonexistent/c++", "CC": "/nonexistent/cc"}
    source = shutil.copytree(
        ROOT, tmp_path / "source",
        ignore=shutil.ignore_patterns(".venv", ".git", "build", "CMakeFiles", "CMakeCache.txt", "*.so", "*.a"),
    )  # fmt: skip
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(tmp_path), str(source)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-none-any.whl")
