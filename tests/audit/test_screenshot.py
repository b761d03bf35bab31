"""A browser draws the page of an audit, wide and narrow, light and dark; `--write` makes the pictures of docs/audit.md.

What is drawn was staged with stock clients and audited: `page_kit.leaders_death`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import page_kit
import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DOCS = Path(__file__).parents[2] / "docs"
IMAGES = {False: DOCS / "audit.png", True: DOCS / "audit-dark.png"}
"""By whether it is dark."""
WIDTH, HEIGHT = 1180, 1180


def shoot(path: Path, width: int, height: int, dark: bool = False) -> Path:
    """A picture of a page in a frame of this width: a browser's window may not be narrow."""
    frame, image = path.with_name("frame.html"), path.with_name(f"{width}{dark}.png")
    style = f"border:0;width:{width}px;height:{height}px"
    scheme = (
        '<meta name="color-scheme" content="light dark">'  # a frame has that of the page around it
    )
    frame.write_text(f'{scheme}<body style="margin:0"><iframe src="{path.name}" style="{style}">')
    with tempfile.TemporaryDirectory() as profile:
        options = (
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
            *("--disable-component-update", "--disable-sync", "--no-first-run"),
            *("--hide-scrollbars", f"--user-data-dir={profile}", f"--screenshot={image}"),
            f"--window-size={max(width, 500)},{height}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        )
        done = subprocess.run(
            [str(CHROMIUM), *options, frame.as_uri()], capture_output=True, text=True, timeout=90
        )
    assert image.exists(), done.stderr
    return image


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
@pytest.mark.parametrize(("width", "dark"), [(WIDTH, False), (WIDTH, True), (400, True)])
def test_a_browser_draws_the_page_without_scripts(tmp_path: Path, width: int, dark: bool) -> None:
    pytest.importorskip("matplotlib")
    from PIL import Image

    from kwire.audit import page

    picture = Image.open(shoot(page.write(page_kit.leaders_death(tmp_path)), width, 1400, dark))
    colours = picture.convert("RGB").crop((0, 0, width, 1400)).getcolors(1 << 24)
    assert colours is not None
    seen = {f"#{r:02x}{g:02x}{b:02x}" for count, (r, g, b) in colours if count > 20}
    leaders = {"#5bb4ee", "#efb93f", "#3fc89b"} if dark else {"#0063a6", "#d29200", "#00795b"}
    assert leaders <= seen, "the bars of three leaders"
    assert ("#ff8150" if dark else "#c23b00") in seen, "what was lost"
    assert max(colours)[1] == ((0x12, 0x17, 0x1D) if dark else (255, 255, 255)), "the background"


@pytest.mark.parametrize("image", IMAGES.values(), ids=lambda path: path.stem)
def test_the_pictures_in_the_docs_are_of_moderate_size(image: Path) -> None:
    content = image.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n" and len(content) < 200_000
    assert int.from_bytes(content[16:20], "big") == WIDTH
    assert f'"{image.name}"' in (DOCS / "audit.md").read_text()


def write_images() -> None:
    from PIL import Image

    from kwire.audit import page

    for dark, image in IMAGES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = page.write(page_kit.leaders_death(Path(folder)))
            picture = Image.open(shoot(path, WIDTH, HEIGHT, dark)).convert("RGB")
            picture.quantize(256).save(image, optimize=True)
        print(image, image.stat().st_size)


if __name__ == "__main__" and "--write" in sys.argv:
    write_images()
