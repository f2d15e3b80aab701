from __future__ import annotations

import subprocess
import sys


def test_the_api_runs_without_torch_and_without_the_engine() -> None:
    code = (
        "import sys\n"
        "from api.app import create_app\n"
        "from tasks.settings import Settings\n"
        "create_app(Settings(database_url='postgresql://x/y', broker_url='roost://x')).openapi()\n"
        "print([m for m in sys.modules if m.partition('.')[0] in {'torch', 'engine', 'transformers'}])"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
