"""The folder of a report's figures and tables. Files of earlier reports are removed from the
folder.
"""

from collections.abc import Callable
from pathlib import Path
from typing import IO

from cascadetta_lib.files import write_atomically, write_text_atomically

MANIFEST = ".written-by-the-report"
"""The file that lists the files of the last report, one per line."""


class ReportFolder:
    """Write a report's files into a folder, each whole or not at all, and note their names.

    also: files that the same report writes there by other means.
    """

    def __init__(self, path: str | Path, also: tuple[str, ...] = ()) -> None:
        self.path = Path(path)
        self.also = also
        self.written: set[str] = set()

    def write(self, name: str, write: Callable[[IO[bytes]], object]) -> None:
        """Write a file by `write(file)`.

        Raises ValueError if this report has written a file of that name, because the second file
        would replace the first. Names that differ only in case count as one.
        """
        if name.lower() in {each.lower() for each in self.written}:
            raise ValueError(f"two exhibits of one report would write the file {self.path / name}")
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / name, lambda file: write(file))
        self.written.add(name)

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write a file of this content. Raises ValueError as `write` does."""
        self.write(name, lambda file: file.write(content))

    def write_text(self, name: str, text: str) -> None:
        """Write a text file. Raises ValueError as `write` does."""
        self.write_bytes(name, text.encode())

    def finish(self) -> str:
        """Remove the files that an earlier report wrote and this report did not. Say what was done.

        Files that no report wrote stay, and are named.
        """
        manifest = self.path / MANIFEST
        earlier: set[str] = set()
        if manifest.is_file():
            earlier = set(manifest.read_text(encoding="utf-8").splitlines())
        # A disk may not tell names apart that differ only in case.
        ours = {name.lower() for name in {*self.written, *self.also}}
        old = sorted(name for name in earlier if name.lower() not in ours)
        for name in old:
            if Path(name).name == name:
                (self.path / name).unlink(missing_ok=True)
        if self.written or manifest.is_file():
            text = "".join(f"{name}\n" for name in sorted(self.written | set(self.also)))
            write_text_atomically(manifest, text)
        told = f"{len(self.written)} files in {self.path}."
        if old:
            told += f" Removed, from an earlier report: {', '.join(old)}."
        foreign = self._foreign()
        if foreign:
            told += f" Not written by the report, and left there: {', '.join(foreign)}."
        return told

    def _foreign(self) -> list[str]:
        """Return the files that no report wrote."""
        if not self.path.is_dir():
            return []
        known = self.written | set(self.also) | {MANIFEST}
        return sorted(path.name for path in self.path.iterdir() if path.name not in known)
