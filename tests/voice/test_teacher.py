"""The teacher's graph in float32 against NumPy, and the letters that it names."""

import numpy as np
import pytest

from corpus import teacher

onnx = pytest.importorskip("onnx", reason="needs requirements/exports.txt")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs requirements/exports.txt")


def run(nodes: list, stored: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    tensors = {name: onnx.numpy_helper.from_array(value, name) for name, value in stored.items()}
    weights: dict[str, np.ndarray] = {}
    nodes = [teacher._float_node(node, tensors, weights) for node in nodes]
    tensors |= {name: onnx.numpy_helper.from_array(np.ascontiguousarray(v), name) for name, v in weights.items()}
    used = {name for node in nodes for name in node.input}
    io = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xy"]
    graph = onnx.helper.make_graph(nodes, "g", io[:1], io[1:], [t for name, t in tensors.items() if name in used])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


def test_products_of_quantised_weights_are_exact() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(1, 3, 7)).astype(np.float32)
    make = onnx.helper.make_node
    quantise = make("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"])
    rescale = [make("Cast", ["p"], ["f"], to=1), make("Mul", ["f", "scale"], ["y"])]
    weight, zero = random.integers(0, 255, (7, 5), dtype=np.uint8), random.integers(0, 255, 5, dtype=np.uint8)
    product = make("MatMulInteger", ["q", "w", "zero", "w_zero"], ["p"])
    got = run([quantise, product, *rescale], {"w": weight, "w_zero": zero}, x)
    np.testing.assert_allclose(got, x.astype(float) @ (weight.astype(float) - zero), rtol=1e-5)
    weight, zero = random.integers(0, 255, (4, 3, 3), dtype=np.uint8), np.array([9, 200, 40, 128], np.uint8)
    product = make("ConvInteger", ["q", "w", "zero", "w_zero"], ["p"], pads=[1, 1], kernel_shape=[3])
    got = run([quantise, product, *rescale], {"w": weight, "w_zero": zero}, x)
    padded, exact = np.pad(x[0].astype(float), ((0, 0), (1, 1))), weight.astype(float) - zero.reshape(4, 1, 1)
    expected = np.stack([np.tensordot(exact, padded[:, t : t + 3], 2) for t in range(7)], axis=1)
    np.testing.assert_allclose(got[0], expected, rtol=1e-5, atol=1e-3)


def test_lstm_weights_by_direction_and_by_unit() -> None:
    quantised = np.arange(2 * 3 * 8, dtype=np.uint8).reshape(2, 3, 8)
    for scale, zero in (
        (np.array(0.5), np.array(3, np.uint8)),
        (np.array([0.5, 2.0]), np.array([3, 40], np.uint8)),
        (np.linspace(0.1, 1.6, 16).reshape(2, 8), np.arange(16, dtype=np.uint8).reshape(2, 8)),
    ):
        got = teacher._lstm_weights(quantised, scale, zero)
        assert got.shape == (2, 8, 3)
        for direction, unit, entry in ((0, 0, 0), (1, 5, 2), (1, 7, 0)):
            of_unit = (direction, unit) if scale.ndim == 2 else direction if scale.ndim else ()
            expected = (float(quantised[direction, entry, unit]) - float(zero[of_unit])) * scale[of_unit]
            assert got[direction, unit, entry] == pytest.approx(expected)
