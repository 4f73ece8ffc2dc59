"""`labkit lab` opens JupyterLab for this machine alone, and asks nothing of the network."""

import json
import os
import subprocess
import sys

from labkit.cli.lab import FIRST, lab_command, lab_environment, lab_root


def test_the_server_listens_on_this_machine_alone_and_opens_the_first_notebook(tmp_path):
    command = lab_command(tmp_path, ["--no-browser", "--port", "9000"])
    assert command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert "--ServerApp.ip=127.0.0.1" in command
    assert f"--ServerApp.root_dir={tmp_path}" in command
    assert "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb" in command
    assert command[-3:] == ["--no-browser", "--port", "9000"]
    assert not any("token" in word for word in command)


def test_the_notebooks_of_this_folder_come_before_those_of_the_checkout(tmp_path, monkeypatch):
    (tmp_path / FIRST).parent.mkdir()
    (tmp_path / FIRST).touch()
    monkeypatch.chdir(tmp_path)
    assert lab_root() == tmp_path


def test_a_config_path_of_ones_own_is_kept():
    found = lab_environment({"JUPYTER_CONFIG_PATH": "mine", "OTHER": "1"})
    assert found["JUPYTER_CONFIG_PATH"].endswith(os.pathsep + "mine")
    assert found["OTHER"] == "1"
    assert os.pathsep not in lab_environment({})["JUPYTER_CONFIG_PATH"]


def test_jupyterlab_reads_that_announcements_are_off():
    ask = (
        "import json; from jupyterlab_server.config import get_static_page_config; "
        "print(json.dumps(get_static_page_config(level='all')))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ask],
        env=lab_environment(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    disabled = json.loads(done.stdout)["disabledExtensions"]
    assert disabled["@jupyterlab/apputils-extension:announcements"] is True
