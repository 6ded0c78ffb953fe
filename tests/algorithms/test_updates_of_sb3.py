"""A2C and PPO next to Stable-Baselines3's own: same weights and same rollout, so the same targets and the same update."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sb_dqn import A2C, PPO
from tests.marks import a_few

peer = pytest.importorskip("stable_baselines3", reason="the peer, installed by the bench extra")
identity = pytest.importorskip("stable_baselines3.common.envs.identity_env", reason="comes with the peer")
vec_env = pytest.importorskip("stable_baselines3.common.vec_env", reason="comes with the peer")

ROLLOUTS, STEPS, LENGTH = 3, 8, 5
"""The steps are those of a rollout, the length is that of an episode, which a time limit ends within the rollout."""
ENVS: dict[str, Any] = {
    "discrete": lambda: identity.IdentityEnv(4, ep_length=LENGTH),
    "box": lambda: identity.IdentityEnvBox(eps=0.5, ep_length=LENGTH),
    "multi binary": lambda: identity.IdentityEnvMultiBinary(3, ep_length=LENGTH),
    "multi discrete": lambda: identity.IdentityEnvMultiDiscrete(3, ep_length=LENGTH),
}
COMMON: dict[str, Any] = {"n_steps": STEPS, "gamma": 0.9, "seed": 0, "device": "cpu"}
SETTINGS: dict[str, dict[str, Any]] = {
    "A2C": {**COMMON, "ent_coef": 0.01},
    "A2C, normalized": {**COMMON, "gae_lambda": 0.8, "normalize_advantage": True},
    "A2C, Adam": {**COMMON, "use_rms_prop": False},
    "PPO": {**COMMON, "batch_size": STEPS, "n_epochs": 1, "ent_coef": 0.01},
}


def lane(kind: str) -> Any:
    env = ENVS[kind]()
    return vec_env.DummyVecEnv([lambda: env])


def named_as_theirs(name: str) -> str:
    """The name of one of our parameters in Stable-Baselines3's policy."""
    for tower in ("policy", "value"):
        if name.startswith(f"{tower}_tower.linears."):
            _, _, number, kind = name.split(".")
            return f"mlp_extractor.{tower}_net.{2 * int(number)}.{kind}"
    for ours, theirs in (("action_head.outputs", "action_net"), ("action_head.log_std", "log_std")):
        name = name.replace(ours, theirs)
    return name.replace("value_head", "value_net")


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {named_as_theirs(name): p.detach().clone() for name, p in model.policy.net.named_parameters()}


def learn(model: Any) -> None:
    """Some rollouts and their updates; the states of the environment are those of its space's seed."""
    model.get_env().envs[0].action_space.seed(3)
    model.learn(ROLLOUTS * STEPS)


def learn_and_record(ours: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    """What our model learned from, one rollout after the other."""
    found = []
    before_updates = ours.before_updates

    def recorded() -> None:
        full = ours.rollout.is_full
        before_updates()
        if full:
            batch = ours.rollout.sample_from(torch.arange(STEPS))
            drawn = batch.extra.get("u", batch.action)  # of a Box before it was clipped
            found.append({"actions": drawn, "returns": batch.return_, "values": batch.extra["value"]})
            found[-1]["log_probs"] = batch.extra["log_prob"]

    monkeypatch.setattr(ours, "before_updates", recorded)
    learn(ours)
    return found


def learn_from(theirs: Any, actions: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    """The same of Stable-Baselines3's, which draws these actions."""
    found: list[dict[str, torch.Tensor]] = []
    turns, train = iter(actions), theirs.train

    def forward(obs: Any, deterministic: bool = False) -> Any:
        action = next(turns)[None]
        value, log_prob, _ = theirs.policy.evaluate_actions(obs, action.float())
        return action, value, log_prob

    def recorded() -> None:
        kept = theirs.rollout_buffer
        names = ("actions", "returns", "values", "log_probs")
        found.append({name: torch.as_tensor(getattr(kept, name).copy()) for name in names})
        train()

    monkeypatch.setattr(theirs.policy, "forward", forward)
    monkeypatch.setattr(theirs, "train", recorded)
    learn(theirs)
    return found


@pytest.mark.parametrize("kind", a_few(ENVS, "discrete", "box"))
@pytest.mark.parametrize("settings", a_few(SETTINGS, "A2C", "PPO"))
def test_the_updates_are_those_of_stable_baselines3(settings: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = settings.split(",")[0]
    ours = {"A2C": A2C, "PPO": PPO}[name]("MlpPolicy", lane(kind), **SETTINGS[settings])
    theirs = getattr(peer, name)("MlpPolicy", lane(kind), **SETTINGS[settings])
    theirs.policy.load_state_dict(weights(ours))  # of the same names and shapes
    mine = learn_and_record(ours, monkeypatch)
    expected = learn_from(theirs, torch.cat([rollout["actions"] for rollout in mine]), monkeypatch)
    assert len(mine) == len(expected) == ROLLOUTS
    for found, wanted in zip(mine, expected, strict=True):
        for key, value in wanted.items():
            close(found[key].reshape(STEPS, -1), value.reshape(STEPS, -1), key)
    for key, parameter in weights(ours).items():
        close(parameter, theirs.policy.state_dict()[key], key)


def close(found: torch.Tensor, wanted: torch.Tensor, name: str) -> None:
    torch.testing.assert_close(found.float(), wanted.float(), atol=1e-5, rtol=1e-4, msg=lambda text: f"{name}: {text}")


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_optimizer_has_the_settings_of_stable_baselines3(settings: str) -> None:
    name = settings.split(",")[0]
    ours, theirs = (
        cls("MlpPolicy", lane("discrete"), **SETTINGS[settings])
        for cls in ({"A2C": A2C, "PPO": PPO}[name], getattr(peer, name))
    )
    assert type(ours.learner.optimizer) is type(theirs.policy.optimizer)
    mine, expected = (group.param_groups[0] for group in (ours.learner.optimizer, theirs.policy.optimizer))
    technical = {"params", "lr", "fused", "foreach"}
    assert {key: mine[key] for key in mine.keys() - technical} == {
        key: expected[key] for key in expected.keys() - technical
    }
