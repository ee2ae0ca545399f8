"""Random small MDPs, for properties that must hold for every one of them."""

from __future__ import annotations

from hypothesis import strategies as st

from nibbler.mdp.classics import garnet
from nibbler.mdp.finite_mdp import FiniteMDP


@st.composite
def small_mdps(draw: st.DrawFn, num_actions: int | None = None, max_states: int = 5) -> FiniteMDP:
    """Ergodic MDPs of up to `max_states` states with full or sparse rewards and one or two bits per state."""
    num_states = draw(st.integers(1, max_states))
    coded = draw(st.booleans())
    return garnet(
        num_states,
        num_actions or draw(st.integers(1, 3)),
        draw(st.integers(1, min(3, num_states))),
        num_features=6 if coded else None,
        active_features=2 if coded else None,
        reward_density=draw(st.sampled_from([0.3, 1.0])),
        seed=draw(st.integers(0, 2**32)),
    )
