"""Sub-pixel upsampling: a 1x1 convolution to ``4 * cout`` channels, ReLU, and PyTorch's PixelShuffle(2).

Truth: the defective twin reads the output channels of the convolution in TensorFlow's order of depth_to_space,
sub-pixel first: channel ``sub * cout + c`` for sub-pixel `sub` of image channel c. PixelShuffle has ``c * 4 + sub``.
The wrong expression is the slice `filters[:, sub * cout : (sub + 1) * cout]` in the branch `blocks` of `upsampled`.

x [cin, height, width], weight [cin, 4 * cout], bias [4 * cout]. Shapes are (cin, cout, height, width).
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PAIR = {
    "id": "b33",
    "cause": "channel-order",
    "also": ("interleave", "layout", "permuted", "wrong-stride"),
    "dtypes": ("float32", "bfloat16", "float16"),
    "shapes": ((64, 16, 8, 24), (160, 32, 6, 20), (200, 24, 9, 30)),
}
STORED = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
FACTOR, LINES = 2, 4


def upsampled(x, weight, bias, blocks):
    cin, height, width = x.shape
    subs = FACTOR * FACTOR
    cout = weight.shape[1] // subs
    out = nl.ndarray((cout, height * FACTOR, width * FACTOR), dtype=x.dtype, buffer=nl.shared_hbm)
    offsets = nl.ndarray((cout, subs), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=offsets, src=bias.reshape((cout, subs)))
    for row in range(0, height, LINES):
        lines = min(LINES, height - row)
        image = nl.ndarray((cout, lines, FACTOR, width, FACTOR), dtype=x.dtype, buffer=nl.sbuf)
        for sub in range(subs):
            total = nl.ndarray((cout, lines * width), dtype=nl.float32, buffer=nl.psum)
            for low in range(0, cin, 128):
                count = min(128, cin - low)
                filters = nl.load(weight[low : low + count, :])
                pixels = nl.load(x[low : low + count, row : row + lines, :])
                chosen = nl.ndarray((count, cout), dtype=weight.dtype, buffer=nl.sbuf)
                if blocks:
                    nisa.tensor_copy(dst=chosen, src=filters[:, sub * cout : (sub + 1) * cout])
                else:
                    nisa.tensor_copy(dst=chosen, src=filters[:, sub : cout * subs : subs])
                moving = pixels.reshape((count, lines * width))
                nisa.nc_matmul(dst=total, stationary=chosen, moving=moving, accumulate=low > 0)
            active = nl.ndarray((cout, lines, width), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(
                dst=active.reshape((cout, lines * width)),
                op=nl.relu,
                data=total,
                bias=offsets[:, sub : sub + 1],
            )
            nisa.tensor_copy(dst=image[:, :, sub // FACTOR, :, sub % FACTOR], src=active)
        flat = image.reshape((cout, lines * FACTOR, width * FACTOR))
        nisa.dma_copy(dst=out[:, row * FACTOR : (row + lines) * FACTOR, :], src=flat)
    return out


@nki.jit
def honest(x, weight, bias):
    return upsampled(x, weight, bias, blocks=False)


@nki.jit
def defective(x, weight, bias):
    return upsampled(x, weight, bias, blocks=True)


def inputs(shape, dtype, seed):
    cin, cout, height, width = shape
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((cin, height, width)).astype(STORED[dtype])
    weight = (draw.standard_normal((cin, 4 * cout)) / np.sqrt(cin)).astype(STORED[dtype])
    bias = (0.3 * draw.standard_normal(4 * cout)).astype(np.float32)
    return [x, weight, bias]


def reference(x, weight, bias):
    x, weight, bias = (each.astype(np.float64) for each in (x, weight, bias))
    _, height, width = x.shape
    features = np.einsum("ihw,io->ohw", x, weight) + bias[:, None, None]
    features = np.maximum(features, 0.0)
    split = features.reshape(-1, FACTOR, FACTOR, height, width)
    return split.transpose(0, 3, 1, 4, 2).reshape(-1, height * FACTOR, width * FACTOR)
