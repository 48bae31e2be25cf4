"""MNIST: handwritten digits. Its files are part of the package, so that the first run needs no network."""

from pathlib import Path

from altmin.data.idx_images import IdxImages

MNIST = IdxImages(
    name="mnist",
    sample_shape=(1, 28, 28),
    classes=10,
    splits={"train": 50_000, "validation": 10_000, "test": 10_000},
    licence="CC BY-SA 3.0, LeCun, Cortes, Burges",
    url="http://yann.lecun.com/exdb/mnist/",
    download_size=0,
    embedded=Path(__file__).parent / "files" / "mnist",
    md5={
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
)
