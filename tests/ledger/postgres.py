"""A real PostgreSQL for a test: Debian's binaries, a fresh cluster in a folder of its own, a socket and no port."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

USER = "ledger"


def binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    return found[-1].parent if found else None


@dataclass(frozen=True)
class Server:
    """A running server whose databases are made and dropped by name."""

    folder: Path
    bin: Path

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://{USER}@/{database}?host={self.folder}"

    def psql(self, sql: str, database: str = "postgres") -> None:
        command = [self.bin / "psql", "-qX", "-v", "ON_ERROR_STOP=1", "-h", self.folder, "-U", USER, "-d", database]
        subprocess.run([*map(str, command), "-c", sql], check=True, capture_output=True)

    def stop(self, how: str = "fast") -> None:
        _as_owner(self.bin / "pg_ctl", "-D", self.folder / "data", "-m", how, "-w", "stop")

    def start(self, *options: str) -> None:
        wanted = " ".join(["-c listen_addresses=''", f"-c unix_socket_directories='{self.folder}'", *options])
        log = self.folder / "log"
        _as_owner(self.bin / "pg_ctl", "-D", self.folder / "data", "-l", log, "-o", wanted, "-w", "start")


@contextmanager
def postgres_server() -> Generator[Server]:
    """Start a server; stop it and delete its folder afterwards."""
    where = binaries()
    assert where is not None, "no PostgreSQL below /usr/lib/postgresql"
    # not below pytest's folder: the server's user may not enter that
    folder = Path(tempfile.mkdtemp(prefix="reticent-pg-"))
    server = Server(folder, where)
    try:
        if os.getuid() == 0:
            owner = pwd.getpwnam(_owner())
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        init = ["-D", folder / "data", "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C"]
        _as_owner(where / "initdb", *init)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


def _owner() -> str:
    names = {p.pw_name for p in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _as_owner(*command: object) -> None:
    # the server refuses to run as root
    prefix = []
    if os.getuid() == 0:
        owner = pwd.getpwnam(_owner())
        prefix = ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
    subprocess.run([*prefix, *map(str, command)], check=True, stdout=subprocess.DEVNULL, cwd="/")
