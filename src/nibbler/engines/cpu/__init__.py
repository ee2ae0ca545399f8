"""The CPU engine: Numba, float32, environment and agent fused in one compiled loop, sparse and lazy.

| file | what is in it |
| --- | --- |
| `runs` | `open_run`: the runs, one class per kind of agent |
| `nibbler`, `stream` | Nibbler's learner, for runs and for streams |
| `step` | `nibbler_step`, the fused loop |
| `questions`, `rows` | hidden units: answers, main weights over them, lazy momentum |
| `lists` | which rows are on, and which go on or off |
| `selection` | support, discovery, incremental top-k |
| `layout` | memory layout, from and to the canonical arrays |
| `network`, `linear`, `policy` | the other agents |
| `stream` | what a stream from outside needs besides the step |
| `lanes`, `cells`, `compile` | vectors of sixteen floats; arrays as pointers; how functions are compiled |
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nibbler.agents.config import AgentConfig
    from nibbler.engines.run import Run
    from nibbler.mdp.environment import Environment

AGENTS = frozenset({"nibbler", "q-learning", "qv-learning", "known-structure", "linear", "random", "planner"})


def open_run(env: "Environment", config: "AgentConfig", seed: int) -> "Run":
    """A run at step 0 on the CPU engine."""
    from nibbler.engines.cpu.runs import make_run  # brings Numba, which a look at AGENTS does not need

    return make_run(env, config, seed)
