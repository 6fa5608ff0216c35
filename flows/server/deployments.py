"""The flows that a Prefect server may start (``nightly``, ``simulate``, ``reproduce``) and their allowed parameters.

Parameters come from anyone who may talk to the Prefect server.  They choose among shipped recipes, and those that the
operator lists in ``allowed.toml`` of the service's home; they can bring in no other recipe, folder or code.  A
deployed run has no shell and no folder of its own: homes and recipes are absolute paths, and the text of an error goes
to the service's own log, never to the server.

The Prefect server that ``reticent serve`` starts: on a socket it is handed, and gone when its service is.

The service opens the socket before it starts this process, so that no other program can listen in its place.
Standard input is a pipe that the service holds: when it closes, however the service died, the server ends.
"""

# Prefect reads the annotations of flows where it starts them: they are objects here, not text
import os
import socket
import stat
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Self

from prefect import flow
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.runner import Runner
from prefect.schedules import Schedule
from prefect.types.entrypoint import EntrypointType
from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr

from flows.config.home import HOME, SERVED, Home, Work, choose_resources, environment, shipped_recipe
from flows.jobs.nightly import run_night
from flows.jobs.playing import play_job
from flows.jobs.simulated_logs import LogOptions, simulate_logs
from flows.jobs.studies import reproduce_job
from flows.server.recorded import publish, quietly, task_step
from flows.terminal.screen import say
from pipeline.declaration.code import PERMITTED, is_plugin
from pipeline.declaration.toml import CardError, Strict, read_toml, validated
from pipeline.worlds.catalog import GYMNASIUM, WORLDS, refuse_unknown_world
from reports.run.comparison import ServedPage, log_page, night_page, simulation_page, study_page

FILE = "allowed.toml"


def _absolute(path: object) -> Path:
    if not isinstance(path, str) or not Path(path).is_absolute():
        raise ValueError("not an absolute path")
    return Path(path).resolve()


def _plugin(name: str) -> str:
    if not is_plugin(name):
        raise ValueError("not of the form module:object")
    return name


Listed = Annotated[Path, BeforeValidator(_absolute)]


class Allowed(Strict):
    """Plug-ins, recipes and homes that runs of one service may name beside the shipped ones: ``allowed.toml``."""

    plugins: list[Annotated[str, AfterValidator(_plugin)]] = Field(default_factory=list[str])
    recipes: list[Listed] = Field(default_factory=list[Path])
    homes: list[Listed] = Field(default_factory=list[Path])
    _home: Path = PrivateAttr(default=Path())
    _served: Path | None = PrivateAttr(default=None)

    def of(self, home: Path, served: str | None) -> Self:
        """The same for the service of a home, which was started with a recipe, or with none."""
        self._home, self._served = home, None if served is None else Path(served)
        return self

    def recipe(self, name: str) -> Path:
        """The recipe of that name or path.

        Raises CardError if it is neither shipped nor listed.
        """
        if not name.startswith("/"):
            return shipped_recipe(name)
        path = Path(name).resolve()
        if path != self._served and not any(path.is_relative_to(listed) for listed in self.recipes):
            raise CardError(f"{name}: not a recipe this service runs; list it as `recipes` in {self._home / FILE}")
        return path

    def home_of(self, name: str | None) -> Path:
        """The home that a run names; None: the service's.

        Raises CardError if it is another one, and not listed.
        """
        home = self._home if name is None else Path(name).resolve()
        if home not in (self._home, *self.homes):
            raise CardError(f"{name}: not a home this service works in; list it as `homes` in {self._home / FILE}")
        return home

    @contextmanager
    def enforced(self) -> Generator[None]:
        """In this process, and those it starts, no other plug-in is imported."""
        with environment(PERMITTED, " ".join(self.plugins)):
            yield


def read_allowed() -> Allowed:
    """Read the list of the service of this process, in the folder ``RETICENT_HOME``; empty where there is none.

    Raises CardError if there is no such home, another account could have written the list, or it is wrong.
    """
    named = Path(os.environ.get(HOME, ""))
    if not named.is_absolute():
        raise CardError(f"a deployed run needs the absolute home of its service: set {HOME} for serve, or the worker")
    home, served = named.resolve(), os.environ.get(SERVED)
    path = home / FILE
    if not path.exists():
        return Allowed().of(home, served)
    about = path.stat()
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CardError(f"{path}: belongs to another account or others may write to it; only its operator may")
    return validated(Allowed, read_toml(path), str(path)).of(home, served)


EXAMPLE_CRON = "15 2 * * *"

Folder = Annotated[
    str, Field(pattern=r"^/", description="A home that the operator lists; default: RETICENT_HOME of the service.")
]
RecipeName = Annotated[
    str,
    Field(
        pattern=r"^(/.+\.toml|[a-z0-9][a-z0-9_\-]*)$", description="A path that the operator lists, or a shipped name."
    ),
]
# the last is a plug-in, which the operator must have listed
World = Annotated[
    str,
    Field(
        pattern=rf"^({'|'.join(WORLDS)}|{GYMNASIUM}[A-Za-z0-9_.\-]+|[A-Za-z0-9_.]+:[A-Za-z0-9_]+)$",
        description=f"One of {', '.join(WORLDS)}, {GYMNASIUM}ID, or a plug-in that the operator lists.",
    ),
]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_\-:.]*$")]
Count = Annotated[int, Field(ge=1, le=10**9)]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
Budget = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@flow(name="nightly", retries=0, persist_result=False, log_prints=False)
def nightly(recipe: RecipeName, home: Folder | None = None) -> None:
    """What the recipe declares for this date: ingest, release, learn, report, compare with the run in use."""
    _deployed(lambda a: night_page(run_night(str(a.recipe(recipe)), _home(a, home), Work(task_step, say))))


@flow(name="simulate", retries=0, persist_result=False, log_prints=False)
def simulate(
    recipe: RecipeName | None = None,
    world: World | None = None,
    episodes: Count = 10_000,
    behaviour: str | None = None,
    horizon: Count | None = None,
    seed: Seed = 0,
    bins: str | None = None,
    params: list[str] | None = None,
    episodes_per_user: Count = 1,
    rho: Budget = 4.0,
    name: Name | None = None,
    home: Folder | None = None,
) -> None:
    """An online agent by its recipe, or, by the other parameters, a simulated log of a world with card and recipe."""
    options = LogOptions(behaviour, episodes, horizon, seed, bins, tuple(params or ()), episodes_per_user, rho, name)

    def job(allowed: Allowed) -> ServedPage:
        place = _home(allowed, home)
        match recipe, world:
            case str(named), None:
                return simulation_page(play_job(allowed.recipe(named), place, Work(task_step, say)))
            case None, str(named):
                refuse_unknown_world(named)
                return log_page(task_step("simulate")(simulate_logs, named, options, place))
            case _:
                raise CardError("simulate: give either a recipe that has [world], or a world to log")

    _deployed(job)


@flow(name="reproduce", retries=0, persist_result=False, log_prints=False)
def reproduce(name: Name, full: bool = False, home: Folder | None = None) -> None:
    """A paper's figure or table, measured anew."""
    _deployed(lambda a: study_page(reproduce_job(name, _home(a, home), Work(task_step, say), full=full)))


# fields of a schedule that are the operator's
_SCHEDULE = {"schedule", "active", "max_scheduled_runs", "parameters", "slug"}

FLOWS = (nightly, simulate, reproduce)


def deploy(
    runner: Runner, recipe: str, cron: str | None, timezone: str, existing: Mapping[str, Sequence[DeploymentSchedule]]
) -> None:
    """Register the three deployments of a service.

    The runner keeps these very functions and calls no others: the server's address of a flow's code is never read.

    ``cron``: its schedule, active.  None: an example that is not, or whatever the server has.
    ``existing``: deployments of the server with their schedules, which are the operator's: registering a flow without
    them would remove them.
    """
    for each in FLOWS:
        schedules: list[Any] = [
            DeploymentScheduleCreate(**schedule.model_dump(include=_SCHEDULE))
            for schedule in existing.get(each.name, ())
        ]
        if each is nightly and (cron is not None or each.name not in existing):
            schedules = [Schedule(cron=cron or EXAMPLE_CRON, timezone=timezone, active=cron is not None)]
        runner.add_flow(
            each,
            name=each.name,
            parameters={"recipe": recipe} if each is nightly else {},
            schedules=schedules,
            enforce_parameter_schema=True,
            entrypoint_type=EntrypointType.MODULE_PATH,
        )


def _deployed(job: Callable[[Allowed], ServedPage]) -> None:
    """Run a job and show its page; an error's text stays with the service, the server learns its kind."""
    caught: list[Exception] = []

    def restricted() -> ServedPage:
        allowed = read_allowed()
        with allowed.enforced():
            return job(allowed)

    try:
        page = quietly(restricted, caught)
    finally:
        for error in caught:
            print(f"reticent: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    if page is not None:
        publish(page)


def _home(allowed: Allowed, home: str | None) -> Home:
    return Home(allowed.home_of(home), resources=choose_resources())


# seconds that open connections have to end
GRACE = 5

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Callable[[], Awaitable[Message]], Send], Awaitable[None]]

# Prefect's pages keep the secret in the browser, and call a measuring company whatever the settings say
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)


def confined(app: App) -> App:
    """The same server, whose pages may load from it and talk to it alone, and stand in no other page."""

    async def answer(scope: Message, receive: Callable[[], Awaitable[Message]], send: Send) -> None:
        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"content-security-policy", POLICY.encode())]
            await send(message)

        await app(scope, receive, headed)

    return answer


def main() -> None:
    """Serve on the socket whose number is the first argument."""
    import uvicorn
    from prefect.server.api.server import create_app

    config = uvicorn.Config(confined(create_app(final=True)), timeout_graceful_shutdown=GRACE, log_level="info")
    server = uvicorn.Server(config)

    def end_with_the_service() -> None:
        while os.read(0, 1):
            pass
        server.should_exit = True
        # a loop that hangs does not look at it
        threading.Timer(2 * GRACE, os._exit, (1,)).start()

    threading.Thread(target=end_with_the_service, daemon=True).start()
    server.run(sockets=[socket.socket(fileno=int(sys.argv[1]))])


if __name__ == "__main__":
    main()
