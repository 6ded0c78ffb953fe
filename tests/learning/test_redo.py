"""ReDo: which weights, moments and counts of dormant units change, in which order; in runs as users start them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sb_dqn.algorithms import ALGORITHMS, DQN, FQF, R2D2, SAC
from sb_dqn.errors import ConfigurationError
from sb_dqn.learning.redo import Redo, recycle
from sb_dqn.nn.units import find_units
from sb_dqn.rng import torch_seeded
from tests.continuous import Reach
from tests.marks import SLOW, a_few
from tests.several_learners import run_learners
from tests.tiny import SMALL_CNN, Tiny, lanes, quick

IMAGE: dict[str, Any] = {"policy": "CnnPolicy", "policy_kwargs": {"features_extractor_kwargs": SMALL_CNN}}


def weights(model: Any) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.policy.networks[0].named_parameters()}


def recycled(model: Any, dormant: dict[str, list[int]], reset_counts: bool = False) -> tuple[dict[str, Tensor], ...]:
    """Recycles units by the number and the layer that makes them; returns the weights before and after, and the new draw."""
    policy, learner = model.policy, model.learner
    with torch_seeded(5):
        fresh = copy.deepcopy(policy).new_networks()[0]
    before = weights(model)
    online = copy.deepcopy(policy.networks[0])
    batch = model.replay.sample(1, torch.Generator())
    found = {u.layer: u for u in find_units(online, lambda: learner.evaluate(online, policy.networks[1], batch))}
    chosen = []
    for name, numbers in dormant.items():
        units = found[name]
        mask = torch.zeros(len(unit_weights(policy.networks[0], units.layer)), dtype=torch.bool)
        mask[numbers] = True
        chosen.append((units, mask))
    recycle(policy, learner, chosen, reset_counts, seed=5)
    return before, weights(model), {name: value.detach() for name, value in fresh.named_parameters()}


def unit_weights(network: nn.Module, layer: str) -> Tensor:
    weight = network.get_submodule(layer).weight
    assert isinstance(weight, Tensor)
    return weight


def assert_changed(before: Tensor, after: Tensor, at: Any, expected: Tensor | float) -> None:
    """Only the entries `at` have changed, to the expected values."""
    wanted = before.clone()
    wanted[at] = expected
    assert torch.equal(after, wanted)


def moments(model: Any) -> dict[str, dict[str, Tensor]]:
    """Adam's moments by their name and that of the parameter."""
    step, online = model.learner.optimizer_step, model.policy.networks[0]
    states = [step.optimizer.state.get(master, {}) for master in step.masters]
    names = [name for name, _ in online.named_parameters()]
    if not step.whole:
        kinds = ("exp_avg", "exp_avg_sq")
        return {kind: {n: s[kind].clone() for n, s in zip(names, states, strict=True) if s} for kind in kinds}
    found: dict[str, dict[str, Tensor]] = {}
    for kind in ("exp_avg", "exp_avg_sq"):
        clone = copy.deepcopy(online)
        start = 0
        for parameter in clone.parameters():  # 4-d weights are channels last in the flat tensor
            part = states[0][kind][start : start + parameter.numel()]
            start += parameter.numel()
            if parameter.dim() == 4:
                out, depth, height, width = parameter.shape
                parameter.data = part.view(out, height, width, depth).permute(0, 3, 1, 2).clone()
            else:
                parameter.data = part.view(parameter.shape).clone()
        found[kind] = {name: value.detach() for name, value in clone.named_parameters()}
    return found


def planted(model: Any) -> Any:
    """Gives all moments values other than 0."""
    for state in model.learner.optimizer.state.values():
        for kind in ("exp_avg", "exp_avg_sq"):
            state[kind].fill_(0.25)
    return model


LAYERS = {"net_arch": [4, 3]}


def test_rows_are_drawn_and_columns_are_zero_in_this_order() -> None:
    """Unit 1 of the first layer and unit 2 of the second: weight [2, 1] between them is drawn first, then set to 0."""
    model = planted(quick(policy_kwargs=LAYERS).learn(40))
    target = copy.deepcopy(model.policy.q_net_target.state_dict())
    before, after, fresh = recycled(model, {"torso.linears.0": [1], "last.linears.0": [2]})
    first, second, head = "torso.linears.0", "last.linears.0", "head.outputs.of_actions"
    assert_changed(before[f"{first}.weight"], after[f"{first}.weight"], 1, fresh[f"{first}.weight"][1])
    assert_changed(before[f"{first}.bias"], after[f"{first}.bias"], 1, fresh[f"{first}.bias"][1])
    wanted = before[f"{second}.weight"].clone()
    wanted[2] = fresh[f"{second}.weight"][2]
    wanted[:, 1] = 0.0
    assert torch.equal(after[f"{second}.weight"], wanted)
    assert_changed(before[f"{second}.bias"], after[f"{second}.bias"], 2, fresh[f"{second}.bias"][2])
    assert_changed(before[f"{head}.weight"], after[f"{head}.weight"], (slice(None), 2), 0.0)
    assert torch.equal(after[f"{head}.bias"], before[f"{head}.bias"]), "biases of readers stay"
    assert all(torch.equal(value, target[name]) for name, value in model.policy.q_net_target.state_dict().items())


@SLOW
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("reset_counts", [False, True])
def test_moments_of_changed_weights_are_zero_and_counts_stay_unless_asked(whole: bool, reset_counts: bool) -> None:
    model = quick(policy_kwargs=LAYERS)
    if not whole:
        model.policy.q_net.head.outputs.of_actions.bias.requires_grad_(False)
        model.learn(1)
    planted(model.learn(40))
    assert model.learner.optimizer_step.whole is whole
    count = model._n_updates
    recycled(model, {"torso.linears.0": [1]}, reset_counts)
    for kind in moments(model).values():
        assert_changed(torch.full((4, 2), 0.25), kind["torso.linears.0.weight"], 1, 0.0)
        assert_changed(torch.full((4,), 0.25), kind["torso.linears.0.bias"], 1, 0.0)
        assert_changed(torch.full((3, 4), 0.25), kind["last.linears.0.weight"], (slice(None), 1), 0.0)
        for name in ("last.linears.0.bias", "head.outputs.of_actions.weight"):
            assert (kind[name] == 0.25).all()
    counts = [int(state["step"]) for state in model.learner.optimizer.state.values()]
    # rows and bias of the first layer, columns of the second; the head's tensors keep theirs
    expected = [0 if reset_counts else count] if whole else [*[0 if reset_counts else count] * 3, count, count]
    assert counts == expected
    assert model.learner.optimizer.param_groups[0]["lr"] == 1e-3
    model.learn(20, reset_num_timesteps=False)
    assert torch.isfinite(model.learner.flat).all()


def test_channels_of_a_convolution_have_one_column_per_pixel() -> None:
    model = planted(quick(Tiny("image"), **IMAGE).learn(40))
    first, conv = "features.extractor.cnn.0", "features.extractor.cnn.2"
    before, after, fresh = recycled(model, {first: [3], conv: [0, 6]})
    assert_changed(before[f"{first}.weight"], after[f"{first}.weight"], 3, fresh[f"{first}.weight"][3])
    rows = before[f"{conv}.weight"].clone()
    rows[[0, 6]] = fresh[f"{conv}.weight"][[0, 6]]
    rows[:, 3] = 0.0
    assert torch.equal(after[f"{conv}.weight"], rows)
    pixels = before["last.linears.0.weight"].shape[1] // 8
    mask = torch.zeros(8, dtype=torch.bool)
    mask[[0, 6]] = True
    columns = mask.repeat_interleave(pixels)
    assert not torch.equal(columns, mask.repeat(pixels)), "the order of images whose channels come last"
    assert_changed(before["last.linears.0.weight"], after["last.linears.0.weight"], (slice(None), columns), 0.0)
    for kind in moments(model).values():
        zero = kind["last.linears.0.weight"] == 0
        assert torch.equal(zero, columns.expand_as(zero))
        zero = kind[f"{conv}.weight"] == 0  # of which the flat tensor has the channels last
        assert zero[[0, 6]].all()
        assert zero[:, 3].all()
        assert int(zero.sum()) == (2 * 4 + 6) * zero[0, 0].numel()


@SLOW
def test_the_layer_before_two_streams_has_two_readers() -> None:
    model = quick(dueling=True, policy_kwargs=LAYERS).learn(40)
    before, after, _ = recycled(model, {"torso.linears.0": [2]})
    for stream in ("of_state", "of_actions"):
        name = f"last.{stream}.linears.0.weight"
        assert_changed(before[name], after[name], (slice(None), 2), 0.0)


@SLOW
def test_noisy_layers_have_means_and_deviations() -> None:
    model = quick(noisy=True, policy_kwargs=LAYERS).learn(40)
    model.learner.flat.add_(1.0)
    before, after, fresh = recycled(model, {"torso.linears.0": [1]})
    for key in ("weight", "sigma_weight", "bias", "sigma_bias"):
        name = f"torso.linears.0.{key}"
        assert_changed(before[name], after[name], 1, fresh[name][1])
    for key in ("weight", "sigma_weight"):
        assert_changed(before[f"last.linears.0.{key}"], after[f"last.linears.0.{key}"], (slice(None), 1), 0.0)
    for key in ("bias", "sigma_bias"):
        assert torch.equal(before[f"last.linears.0.{key}"], after[f"last.linears.0.{key}"])


@SLOW
def test_gains_and_biases_of_a_norm_start_again() -> None:
    model = quick(policy_kwargs={**LAYERS, "layer_norm": True}).learn(40)
    model.learner.flat.add_(1.0)
    before, after, _ = recycled(model, {"torso.linears.0": [1]})
    assert_changed(before["torso.after.0.0.weight"], after["torso.after.0.0.weight"], 1, 1.0)
    assert_changed(before["torso.after.0.0.bias"], after["torso.after.0.0.bias"], 1, 0.0)
    cnn = {**SMALL_CNN, "layer_norm": True}  # over (H, W, C) of the image
    model = quick(Tiny("image"), "CnnPolicy", policy_kwargs={"features_extractor_kwargs": cnn}).learn(40)
    model.learner.flat.add_(1.0)
    before, after, _ = recycled(model, {"features.extractor.cnn.0": [3]})
    name = "features.extractor.cnn.1.weight"
    assert before[name].shape[-1] == 4
    assert_changed(before[name], after[name], (..., 3), 1.0)


@SLOW
def test_fractions_read_the_features_too_and_forget() -> None:
    model = quick(algorithm=FQF, fraction_learning_rate=1e-3, policy_kwargs=LAYERS).learn(60)
    fractions = model.learner.optimizer_step.fraction_optimizer
    assert fractions is not None
    (square,) = (state["square_avg"] for state in fractions.state.values() if state["square_avg"].dim() == 2)
    square.fill_(0.25)
    before, after, _ = recycled(model, {"torso.linears.0": [1]})
    for name in ("embedding.proposal.weight", "last.linears.0.weight"):
        assert_changed(before[name], after[name], (slice(None), 1), 0.0)
    assert_changed(torch.full_like(square, 0.25), square, (slice(None), 1), 0.0)


def test_squares_that_begin_at_one_begin_there_again() -> None:
    kwargs = {**LAYERS, "optimizer_class": "RMSpropTFLike"}
    model = quick(policy_kwargs=kwargs).learn(40)
    (state,) = model.learner.optimizer.state.values()
    state["square_avg"].fill_(0.25)
    recycled(model, {"torso.linears.0": [1]})
    squares = state["square_avg"][:8].view(4, 2)  # the first weight
    assert_changed(torch.full((4, 2), 0.25), squares, 1, 1.0)


def kill(model: Any, layer: str, numbers: Any) -> None:
    """No observation activates the units any more."""
    with torch.no_grad():
        part = model.policy.networks[0].get_submodule(layer)
        part.weight[numbers] = 0.0
        part.bias[numbers] = -3.0
    model.learner.refresh()


def activity(model: Any, layer: str) -> Tensor:
    """Mean activity of ReLU units of the first layer over some observations."""
    part = model.policy.networks[0].get_submodule(layer)
    obs = model.replay.sample(64, torch.Generator())
    return torch.relu(part(obs.obs["obs"])).mean(0).detach()


@SLOW
@pytest.mark.parametrize("numbers", [[2], [0, 1, 2, 3]], ids=["one unit", "the whole layer"])
def test_dead_units_come_alive_only_with_redo(numbers: list[int]) -> None:
    for redo in (False, {"every": 10, "threshold": 0.0}):
        model = quick(policy_kwargs=LAYERS, redo=redo, train_freq=1, learning_rate=1e-2).learn(30)
        kill(model, "torso.linears.0", numbers)
        model.learn(40, reset_num_timesteps=False)
        now = activity(model, "torso.linears.0")[numbers]
        if redo:
            # a new unit may be dead for all observations again, and is then recycled again
            assert (now > 0).any()
            read = unit_weights(model.policy.q_net, "last.linears.0")[:, numbers]
            assert (read != 0).any(), "its outgoing weights learn from 0 on"
        else:
            assert not now.any()


def test_the_share_of_dormant_units_is_logged() -> None:
    model = quick(policy_kwargs=LAYERS, redo={"every": 10, "threshold": 0.0}, train_freq=1).learn(15)
    assert "train/dormant" not in model.log_facts()
    kill(model, "torso.linears.0", [0, 1, 2])
    kill(model, "last.linears.0", [1])
    model.learn(10, reset_num_timesteps=False)
    share = model.log_facts()["train/dormant"]
    assert 4 / 7 <= share <= 1.0
    assert float(share * 7).is_integer()


@SLOW
def test_without_dormant_units_the_run_is_the_same_bit_for_bit() -> None:
    settings = {"policy_kwargs": {**LAYERS, "activation_fn": "Tanh"}, "prioritized_replay": True, "noisy": True}
    runs = [quick(redo=redo, **settings).learn(120) for redo in (False, {"every": 5, "threshold": 0.0})]
    assert runs[1].log_facts()["train/dormant"] == 0.0
    assert torch.equal(runs[0].learner.flat, runs[1].learner.flat)


@pytest.mark.parametrize("frozen", ["torso", "last"])
def test_units_with_frozen_weights_stay(frozen: str) -> None:
    """The torso makes the units, and the last hidden layer reads them."""
    model = quick(policy_kwargs=LAYERS, redo=5, train_freq=1)
    model.policy.q_net.get_submodule(frozen).requires_grad_(False)
    kill(model, "torso.linears.0", [0, 1])
    model.learn(60)
    after = weights(model)
    assert (after["torso.linears.0.weight"][:2] == 0).all()
    assert (after["last.linears.0.weight"][:, :2] != 0).all()


def checked(value: Any) -> Any:
    recycler = quick(redo=value)._recycler
    return None if recycler is None else recycler.settings


def test_settings() -> None:
    assert checked(False) is None
    assert checked(True) == Redo(1000, 0.025, False)
    assert checked(7) == Redo(7)
    assert checked({"threshold": 0.1, "reset_counts": True}) == Redo(1000, 0.1, True)
    converted = checked(1e3)
    assert converted == checked({"every": 1e3}) == Redo(1000)
    assert isinstance(converted.every, int)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (0, r"redo\['every'\]"),
        (2.5, r"redo\['every'\]"),
        ({"every": -1}, r"redo\['every'\]"),
        ({"threshold": 1.0}, r"redo\['threshold'\]"),
        ({"threshold": -0.1}, r"redo\['threshold'\]"),
        ({"reset_counts": 1}, r"redo\['reset_counts'\]"),
        ({"tau": 0.1}, "tau"),
        ("often", "redo"),
        (None, "redo"),
    ],
)
def test_bad_settings_are_named(value: Any, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        DQN("MlpPolicy", "CartPole-v1", redo=value)


CASES: dict[str, dict[str, Any]] = {
    "DQN": {},
    "all switches": {
        "double_q": True, "dueling": True, "noisy": True, "n_steps": 3, "prioritized_replay": True, "value_loss": "hl_gauss",
        "tau": 0.1, "policy_kwargs": LAYERS,
    },
    "image, bf16": {**IMAGE, "env": lambda: Tiny("image"), "precision": "bf16"},
    "Dict": {
        "env": lambda: Tiny("dict with image"), "policy": "MultiInputPolicy", "munchausen": True,
        "policy_kwargs": {
            "net_arch": [8],
            "features_extractor_kwargs": {"cnn_kwargs": {"channels": (4, 4), "kernels": (8, 4), "strides": (4, 2)}},
        },
    },
    "IMPALA": {
        "policy": "CnnPolicy", "env": lambda: Tiny("image"),
        "policy_kwargs": {
            "features_extractor_class": "ImpalaCNN",
            "features_extractor_kwargs": {"features_dim": 16, "widths": (4,), "spectral_norm": True},
        },
    },
    "CategoricalDQN": {"algorithm": ALGORITHMS["CategoricalDQN"]},
    "QRDQN": {"algorithm": ALGORITHMS["QRDQN"]},
    "IQN": {"algorithm": ALGORITHMS["IQN"]},
    "FQF": {"algorithm": FQF},
    "R2D2": {"algorithm": R2D2, "replay_ratio": 8.0},
    "SAC": {"algorithm": SAC, "env": Reach},
    "SAC, state-dependent": {"algorithm": SAC, "env": Reach, "use_sde": True},
    "SAC, image": {
        "algorithm": SAC, "policy": "CnnPolicy", "env": lambda: Tiny("image"),
        "policy_kwargs": {"net_arch": [6], "share_features_extractor": True, "features_extractor_kwargs": SMALL_CNN},
    },
    "groups": {"actors": "overlapped:2x1", "train_freq": 2},
    "small batches": {"batch_size": 1},
    "resets": {"resets": {"every": 7, "until": 20}},
}  # fmt: skip


@SLOW
@pytest.mark.parametrize("name", a_few(CASES, "all switches", "IQN", "R2D2", "SAC", "resets"))
def test_runs_with_redo(name: str) -> None:
    """The run learns on, differs from one without, and is the same twice. A threshold near 1 finds many dormant units."""

    def run(**more: Any) -> Any:
        settings = {**CASES[name], **more}
        env = lanes(2, settings.pop("env", Tiny))
        return quick(env, **settings).learn(120)

    redo = {"every": 5, "threshold": 0.99, "reset_counts": True}
    first, again, without = run(redo=redo), run(redo=redo), run()
    assert first._n_updates == without._n_updates >= 10
    assert first.log_facts()["train/dormant"] > 0
    assert torch.equal(first.learner.flat, again.learner.flat)
    assert not torch.equal(first.learner.flat, without.learner.flat)
    assert torch.isfinite(first.learner.flat).all()
    if first.learner.low is not None:
        low = first.learner.low
        assert torch.equal(low, first.learner.flat[: low.numel()].to(low.dtype))


@SLOW
def test_units_that_are_looked_up_again_change_no_run() -> None:
    """As in a resumed run, which looks them up at its first time, the other run at an earlier one."""
    flats = []
    for forgets in (False, True):
        model = quick(policy_kwargs=LAYERS, redo={"every": 5, "threshold": 0.99}, noisy=True).learn(60)
        assert model._recycler is not None
        if forgets:
            model._recycler._found = None
        flats.append(model.learn(60, reset_num_timesteps=False).learner.flat)
    assert torch.equal(*flats)


@SLOW
def test_critics_and_actor_of_sac_are_recycled() -> None:
    model = quick(Reach(), algorithm=SAC, redo={"every": 10, "threshold": 0.0}).learn(30)
    makers = ("critics.stacks.towers.0", "critics.stacks.towers.1", "actor.tower")
    for maker in makers:
        kill(model, f"{maker}.linears.0", [1])
    model.learn(30, reset_num_timesteps=False)
    after = weights(model)
    assert all((after[f"{maker}.linears.0.weight"][1] != 0).all() for maker in makers)


def of_one_learner() -> tuple[Any, Any, float]:
    """Learns with rows of its own, by which other units are dormant than in another learner; of any seed some are below the mean."""
    model = quick(lanes(2), policy_kwargs=LAYERS, redo={"every": 4, "threshold": 0.99}, seed=None).learn(80)
    (state,) = model.learner.optimizer.state.values()
    return model.learner.flat.numpy(), state["exp_avg"].numpy(), model.log_facts()["train/dormant"]


@SLOW
def test_several_learners_recycle_the_same_units() -> None:
    (flat, moment, share), (other_flat, other_moment, other_share) = run_learners(2, of_one_learner)
    assert share == other_share > 0
    assert (flat == other_flat).all()
    assert (moment == other_moment).all()
