"""From a spec's text to things that run: only here, when a run starts, is an import path followed."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from nibbler.agents.config import AgentConfig
from nibbler.agents.registry import default_config
from nibbler.engines.run import Run, choose_engine, open_run
from nibbler.studies.spec import RunSpec

# Environments by name, each a function of plain arguments.
ENVIRONMENTS = {"multi_catch": "nibbler.envs.multi_catch:multi_catch"}


def build_environment(source: Mapping[str, Any]) -> Any:
    """The environment that a spec describes."""
    arguments = dict(source)
    if "import" in arguments:
        path = arguments.pop("import")
    else:
        name = arguments.pop("name")
        if name not in ENVIRONMENTS:
            raise ValueError(
                f"environment={name!r} is not known; choose {', '.join(ENVIRONMENTS)} or import yours"
            )
        path = ENVIRONMENTS[name]
    return _call(follow(path), path, arguments)


def build_run(spec: RunSpec, env: Any, engine: str) -> tuple[Run, str, dict[str, Any]]:
    """A run at step 0, the engine it is on ("auto" resolved), and its agent's settings in full.

    An agent of your own is a function, `make(env, seed=..., **settings)`. It returns one of our agents'
    configs, an object with `step(reward, observation)` that returns an action, or a whole
    `nibbler.engines.run.Run`.
    """
    agent = build_agent(spec, env)
    if not isinstance(agent, AgentConfig):
        return _own_run(agent, env, spec), "own", dict(spec.agent)
    if engine == "auto":
        engine = choose_engine(agent.name)
    return open_run(env, agent, spec.seed, engine), engine, agent.to_dict()


def build_agent(spec: RunSpec, env: Any) -> Any:
    """The config of the agent that a spec describes, or what its user's function returned instead."""
    settings = dict(spec.agent)
    if "import" in settings:
        path = settings.pop("import")
        return _call(follow(path), path, {"seed": spec.seed, **settings}, env)
    name = settings.pop("name")
    try:
        return default_config(name, env.num_components, env.num_features, **settings)
    except TypeError as error:
        raise ValueError(f"agent {name!r}: {error}") from None


def _own_run(made: Any, env: Any, spec: RunSpec) -> Run:
    if all(hasattr(made, name) for name in ("advance", "advance_bins", "state", "restore")):
        run: Run = made
        return run
    if hasattr(made, "step"):
        from nibbler.studies.own_agent import OwnAgentRun

        return OwnAgentRun(env, made, spec.seed)
    raise ValueError(
        f"{spec.agent['import']} returned a {type(made).__name__}; return an agent's config, an object with "
        "step(reward, observation), or a Run with advance, advance_bins, state and restore"
    )


def follow(path: str) -> Any:
    """Import what "package.module:name" stands for; modules in the working folder are found too."""
    module_name, _, attribute = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last, so that a file there cannot hide an installed package
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise  # the module is there, but something that it needs is not
        raise ValueError(f"cannot import {path}: there is no module {error.name!r} here") from None
    except AttributeError as error:
        raise ValueError(f"cannot import {path}: {error}") from None
    return found


def _call(function: Any, path: str, arguments: Mapping[str, Any], *first: Any) -> Any:
    if not callable(function):
        raise ValueError(f"{path} is a {type(function).__name__}; it must be a function")
    try:
        return function(*first, **arguments)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            # Raised by the call itself, not inside the function: the settings do not fit it.
            raise ValueError(f"{path} does not take these settings: {error}") from None
        raise
