"""A study on a Ray cluster of two nodes on this machine, one of which is killed in the middle.

Run as a script, since Ray reads its settings from the environment when it is first imported. Prints JSON.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from nibbler.studies.runners import run_study
from nibbler.studies.spec import RunSpec, Study
from nibbler.studies.store import ResultsFolder

STUDY = Study(
    "ray",
    "smoke",
    tuple(
        RunSpec({"import": "toy:make_env"}, {"import": "toy:make_run"}, 20_000, seed, bin_size=1_000)
        for seed in range(3)
    ),
)


def main(folder):
    began = time.monotonic()
    os.environ["TOY_DELAY"] = "0.05"
    os.environ["TOY_HOLD"] = str(folder / "hold")  # runs wait at step 5000 while this file exists
    folder.mkdir()
    (folder / "hold").touch()
    small = {"object_store_memory": 80_000_000}
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **small}
    )
    try:
        doomed = cluster.add_node(num_cpus=1, **small)
        cluster.wait_for_nodes()
        up = time.monotonic() - began
        report = {"up": up, **with_a_node_killed(cluster, doomed, folder), **with_ctrl_c(cluster, folder)}
    finally:
        ray.shutdown()
        cluster.shutdown()
    print(json.dumps({**report, "seconds": time.monotonic() - began}))


def with_a_node_killed(cluster, doomed, folder):
    """The study ends although a node dies once both nodes have saved something."""
    results = ResultsFolder(folder)
    killed_at = {}

    def kill():
        while len(saved := {s.seed: c[0][0] for s in STUDY.runs if (c := results.run(s).checkpoints())}) < 2:
            time.sleep(0.05)
        cluster.remove_node(doomed, allow_graceful=False)
        killed_at.update(saved)
        (folder / "hold").unlink()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    outcome = run_study(STUDY, folder, runner="ray", address=cluster.address, save_every=0.01)
    killer.join()
    again = run_study(STUDY, folder, runner="ray", address=cluster.address)
    return {
        "complete": outcome.complete,
        "failed": [event.message for event in outcome.failed],
        "killed_at": killed_at,
        "pieces": [[p["from"] for p in results.run(s).record()["segments"]] for s in STUDY.runs],
        "again": [event.kind for event in again.endings.values()],
    }


def with_ctrl_c(cluster, folder):
    """Ctrl-C saves what is under way."""
    stopping = Study("stop", "smoke", (STUDY.runs[0].replace(seed=99, steps=400_000),))
    place = ResultsFolder(folder).run(stopping.runs[0])

    def interrupt():
        while not (place.path / "lock").exists():
            time.sleep(0.05)
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    outcome = run_study(stopping, folder, runner="ray", address=cluster.address, save_every=1000.0)
    (event,) = outcome.endings.values()
    return {"stopped": event.kind, "stopped_at": event.step, "state": place.status().state}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
