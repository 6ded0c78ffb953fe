"""Films of a report: found in the folder of a run, or recorded."""

from __future__ import annotations

import base64
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from sb_dqn.runs.run import Run

TYPES = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}
"""Formats that browsers play."""
MAX_BYTES = 20 * 2**20
"""Size of a film from which it is left out of the page."""
MAX_FRAMES = 1800
"""Frames of a recorded film; a longer episode is cut."""


@dataclass(frozen=True)
class Film:
    """Film of a run, ready for the page."""

    caption: str
    media_type: str
    data: Markup
    """`data:` address; empty if the file is too large."""
    note: str = ""

    @property
    def is_picture(self) -> bool:
        """True for a GIF, which is no video for a browser."""
        return self.media_type.startswith("image/")


def find_film(run: Run, caption: str) -> Film | None:
    """Returns the newest film in the folder of a run, or None."""
    found = [path for path in run.folder.iterdir() if path.suffix.lower() in TYPES]
    files = [path for path in found if path.is_file() and not path.is_symlink()]  # a link may lead to a private file
    if not files:
        return None
    path = max(files, key=lambda file: (file.stat().st_mtime, file.name))
    media_type, size = TYPES[path.suffix.lower()], path.stat().st_size
    if size > MAX_BYTES:
        note = f"{path.name} has {size / 2**20:.0f} MiB and is not part of this page."
        return Film(caption, media_type, Markup(), note)
    content = base64.b64encode(path.read_bytes()).decode("ascii")
    return Film(f"{caption}, {path.name}", media_type, Markup(f"data:{media_type};base64,{content}"))


def record_film(run: Run, best: bool = False) -> Path:
    """Records the start of a greedy episode as a new file `film.mp4`, `film_2.mp4`, ... in the folder of the run.

    Raises:
        click.BadParameter: the run has no model.
        ConfigurationError: the environment cannot render, or ffmpeg is missing.
    """
    from sb_dqn.runs.rendering import VideoFile, play_rendered
    from sb_dqn.runs.run import env_of, find_run, load_model

    saved_run = find_run(run.folder, best=best)
    env_id, env_kwargs = env_of(saved_run, None)
    model = load_model(saved_run, "cpu")
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "film.mp4"
        play_rendered(model, env_id, env_kwargs, lambda rate: VideoFile(draft, rate), max_total_steps=MAX_FRAMES)
        target = _free_name(run.folder)
        shutil.copyfile(draft, target)
    return target


def _free_name(folder: Path) -> Path:
    """Returns the first of `film.mp4`, `film_2.mp4`, ... that does not exist."""
    path, number = folder / "film.mp4", 2
    while path.exists():
        path, number = folder / f"film_{number}.mp4", number + 1
    return path
