import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from nightly import LARGE, by_day, first_by_day
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from stallpoint.errors import InputError
from stallpoint.networks import NETWORKS, find_network
from stallpoint.networks.description import describe
from stallpoint.networks.gpt2 import gpt2
from stallpoint.networks.layers import Attention, ClassToken, Layer, Positions, RotaryAttention, layers

# Shi et al. (2018), Table VI: bytes of the gradients of each layer of AlexNet that learns.
TABLE_VI = {
    "conv1": 139_776,
    "conv2": 1_229_824,
    "conv3": 3_540_480,
    "conv4": 2_655_744,
    "conv5": 1_770_496,
    "fc6": 151_011_328,
    "fc7": 67_125_248,
    "fc8": 16_388_000,
}

PUBLISHED = yaml.safe_load((Path(__file__).parents[3] / "resources/published/networks.yaml").read_text("utf-8"))
LAYERS = {
    "alexnet": {"convolution": 5, "lrn": 2}, "alexnet-owt": {"convolution": 5, "lrn": 0},
    "vgg16": {"convolution": 13, "fully-connected": 3},
    "googlenet": {"convolution": 59, "fully-connected": 1 + 2 * 2, "concat": 9, "lrn": 2, "batch-norm": 0},
    "inception-v3": {"convolution": 94 + 2},
    "squeezenet": {"convolution": 1 + 8 * 3 + 1, "concat": 8, "fully-connected": 0},
    # Its name counts the fully-connected layer, and not the four convolutions beside shortcuts.
    **{f"resnet{depth}": {"convolution": depth + 3, "batch-norm": depth + 3, "add": (depth - 2) // 3}
       for depth in (50, 101, 152)},
    "vit-b-16": {"attention": 12, "layer-norm": 25}, "gpt2-small": {"attention": 12, "layer-norm": 25},
}  # fmt: skip
"""How many layers of a type the papers have."""
BY_DAY = by_day(NETWORKS, lambda name: name not in LARGE)


def rounded_as(text: str, value: float) -> str:
    """`value` with as many significant digits as `text` has, and its exponent."""
    mantissa, *exponent = text.split("e")
    scale = float(f"1e{exponent[0]}") if exponent else 1.0
    digits = len(mantissa.partition(".")[2])
    return "e".join([f"{value / scale:.{digits}f}", *exponent])


@pytest.mark.parametrize("name", BY_DAY)
def test_sizes_work_stages_and_layers_to_split_are_those_registered(name: str) -> None:
    network, rows = NETWORKS[name], describe(NETWORKS[name])
    assert sum(row["gradient_bytes"] for row in rows) == network.gradient_bytes
    assert sum(row["multiply_adds"] for row in rows) == network.multiply_adds
    assert sum(row["outputs"] is not None for row in rows) == network.split_layers
    assert 1 + sum(row["activation_bytes"] is not None for row in rows) == network.max_stages


@pytest.mark.parametrize("fact", ["parameters", "multiply_adds"])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_as_large_as_published(name: str, fact: str) -> None:
    published = PUBLISHED[name][fact]
    assert rounded_as(published["text"], getattr(NETWORKS[name], fact)) == published["text"], published["source"]


@pytest.mark.parametrize("name", BY_DAY)
def test_layers_run_in_the_order_of_their_list_and_multiply_adds_are_those_pytorch_counts(name: str) -> None:
    network, device = NETWORKS[name], torch.device("meta")
    outline = network.outline()
    order: list[str] = []

    def note(layer: Layer) -> None:
        layer.module.register_forward_hook(lambda *_: order.append(layer.name))

    for layer in layers(outline):
        note(layer)
    with FlopCounterMode(display=False) as counter, device:
        loss = outline(*network.takes.example(2, device))
    assert loss.shape == ()
    assert order == [layer.name for layer in layers(outline)]
    assert counter.get_total_flops() == 2 * 2 * network.multiply_adds


def test_googlenet_has_the_operations_of_each_row_of_its_paper() -> None:
    """Szegedy et al. (2015), Table 1. Two rows do not follow from their own filters: conv1 (34M) and 5a (54M)."""
    paper = {"3a": 128, "3b": 304, "4a": 73, "4b": 88, "4c": 100, "4d": 119, "4e": 170, "5b": 71}
    paper = {f"inception_{name}": millions for name, millions in paper.items()} | {"conv2": 360, "classifier3": 1}
    ours: Counter[str] = Counter()
    for row in describe(find_network("googlenet")):
        ours[row["layer"].split(".")[0].removesuffix("_reduce")] += row["multiply_adds"]
    assert {name: pytest.approx(ours[name] / 1e6, abs=1) for name in paper} == paper


def test_gpt2s_output_layer_has_the_weights_of_its_embedding_which_count_once() -> None:
    network = find_network("gpt2-small").build(seed=1)
    assert network.get_parameter("output.weight") is network.get_parameter("embedding.weight")
    sizes = {layer.name: layer.gradient_bytes for layer in layers(network)}
    assert (sizes["embedding"], sizes["output"]) == (4 * 50257 * 768, 0)


def test_attention_is_the_softmax_of_scaled_products_of_queries_and_keys_times_values() -> None:
    torch.manual_seed(0)
    length, heads, width = 5, 2, 6
    values = torch.randn(3, length, 3 * width)
    query, key, value = (part.reshape(3, length, heads, -1).transpose(1, 2) for part in values.split(width, dim=-1))
    for causal in (False, True):
        scores = query @ key.transpose(2, 3) / (width / heads) ** 0.5
        if causal:
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
        expected = (scores.softmax(-1) @ value).transpose(1, 2).reshape(3, length, width)
        torch.testing.assert_close(Attention(heads, causal=causal)(values), expected)


def test_rotary_attention_tells_how_far_apart_two_tokens_are_and_not_where() -> None:
    torch.manual_seed(0)
    attention = RotaryAttention(heads=2, groups=1)
    query, key = torch.randn(2, 8)
    scores = torch.stack([attention._rotated(one.expand(1, 6, 8)) for one in (query, key)]).squeeze()
    products = scores[0] @ scores[1].T
    for apart in range(-3, 4):
        torch.testing.assert_close(products.diagonal(apart), products.diagonal(apart)[:1].expand(6 - abs(apart)))
    assert products[0, 0].item() == pytest.approx(float(query @ key), rel=1e-5)
    assert abs(float(products[0, 0] - products[0, 3])) > 1e-3


def test_positions_are_added_to_values() -> None:
    positions = Positions(3, 2)
    torch.testing.assert_close(positions(torch.ones(1, 2, 2)), 1 + positions.weight[:2].unsqueeze(0))


def test_groups_of_heads_share_keys_and_values() -> None:
    torch.manual_seed(0)
    query, shared = torch.randn(1, 5, 4 * 6), torch.randn(1, 5, 2, 2, 6)
    grouped = torch.cat([query, shared.flatten(2)], dim=-1)
    each = torch.cat([query, shared.repeat_interleave(2, dim=3).flatten(2)], dim=-1)
    torch.testing.assert_close(RotaryAttention(4, 2)(grouped), RotaryAttention(4, 4)(each))


@pytest.mark.parametrize("name", first_by_day(["stories-15m", "gpt2-small"]))
def test_decoders_see_no_token_before_its_time(name: str) -> None:
    network = find_network(name).build(seed=1).eval()
    logits = nn.Sequential(*list(network.children())[:-1])
    text = torch.arange(12)[None]
    other = text.clone()
    other[0, 8] = 99
    with torch.no_grad():
        differs = (logits(text) - logits(other)).abs().amax(-1)[0]
    assert differs[:8].max() < 1e-4
    assert differs[8:].min() > 1e-3


@pytest.mark.parametrize(
    ("name", "guesses"), first_by_day([("stories-15m", 32000), ("vit-b-16", 1000), ("gpt2-small", 50257)])
)
def test_transformers_start_near_the_loss_of_a_guess(name: str, guesses: int) -> None:
    network, registered = find_network(name).build(seed=1), find_network(name)
    torch.manual_seed(0)
    images = torch.randn(1, 3, 224, 224), torch.tensor([7])
    text = torch.randint(guesses, (2, 1, 32)).unbind()
    with torch.no_grad():
        loss = network(*(text if registered.takes.kind == "tokens" else images))
    assert loss.item() == pytest.approx(math.log(guesses), rel=0.2)


def test_layers_begin_with_values_of_their_own_whatever_memory_held() -> None:
    """A network of the user's that is put together of them is not initialised by anybody else."""
    torch.use_deterministic_algorithms(True)  # fills new memory with what is not a number
    try:
        made = [gpt2(width=16, heads=2, blocks=1, vocabulary=8, length=4), ClassToken(4)]
    finally:
        torch.use_deterministic_algorithms(False)
    for parameter in (parameter for module in made for parameter in module.parameters()):
        assert parameter.isfinite().all()


@pytest.mark.parametrize("name", LAYERS)
def test_networks_have_the_layers_of_their_papers(name: str) -> None:
    found = Counter(layer.type for layer in layers(find_network(name).outline()))
    assert {kind: found[kind] for kind in LAYERS[name]} == LAYERS[name]


def test_alexnet_has_the_gradient_sizes_of_shi_table_vi() -> None:
    found = {layer.name: layer.gradient_bytes for layer in layers(find_network("alexnet").outline())}
    assert {name: size for name, size in found.items() if size} == TABLE_VI


def test_alexnet_normalises_after_the_first_two_activations() -> None:
    names = [layer.name for layer in layers(find_network("alexnet").outline())]
    assert names[:8] == ["conv1", "relu1", "norm1", "pool1", "conv2", "relu2", "norm2", "pool2"]


def test_alexnet_without_lrn_lacks_nothing_else() -> None:
    names = [name for name, _ in find_network("alexnet").outline().named_children()]
    assert [name for name, _ in find_network("alexnet-no-lrn").outline().named_children()] == [
        name for name in names if name not in ("norm1", "norm2")
    ]


def test_the_same_seed_gives_the_same_weights() -> None:
    first, again, other = (find_network("googlenet").build(seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["conv1.conv.weight"], other["conv1.conv.weight"])


def test_googlenet_starts_at_the_loss_of_a_guess_with_auxiliary_losses_weighted() -> None:
    network = find_network("googlenet").build(seed=1)
    losses: dict[str, float] = {}
    for name in ("loss1", "loss2", "loss3"):
        hook = lambda _module, _inputs, output, name=name: losses.update({name: output.item()})  # noqa: E731
        network.get_submodule(name).register_forward_hook(hook)
    torch.manual_seed(0)
    total = network(torch.randn(1, 3, 224, 224), torch.tensor([7]))
    guess = math.log(1000)
    assert losses == pytest.approx({"loss1": 0.3 * guess, "loss2": 0.3 * guess, "loss3": guess}, rel=0.2)
    assert total.item() == pytest.approx(sum(losses.values()))


def test_layers_of_any_module_have_the_type_of_the_class_they_derive_from() -> None:
    class Half(nn.Linear):
        pass

    class Unknown(nn.Module):
        pass

    network = nn.Sequential(Half(2, 2), Unknown(), nn.Sequential())
    assert [layer.type for layer in layers(network)] == ["fully-connected", "other", "other"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("compiled", [torch.jit.script, torch.compile], ids=["TorchScript", "torch.compile"])
def test_compiled_networks_are_refused(compiled: Callable[[nn.Module], nn.Module]) -> None:
    with pytest.raises(InputError, match=r"inner is compiled .* give the module it was compiled from"):
        layers(nn.Sequential(OrderedDict(inner=compiled(nn.Sequential(nn.Linear(2, 2))))))


def test_an_unknown_network_is_named_beside_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"alexnt.*alexnet, googlenet, resnet50"):
        find_network("alexnt")
