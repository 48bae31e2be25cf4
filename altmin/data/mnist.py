"""MNIST: handwritten digits. Its files are part of the package, so that the first run needs no network."""

from pathlib import Path

from altmin.data.idx_images import IdxImages

MNIST = IdxImages(
    name="mnist",
    sample_shape=(1, 28, 28),
    classes=10,
    splits={"train": 50_000, "validation": 10_000, "test": 10_000},
    licence="CC BY-SA 3.0, LeCun, Cortes, Burges",
    url="https://yann.lecun.com/exdb/mnist/",
    download_size=0,
    embedded=Path(__file__).parent / "files" / "mnist",
    sha256={
        "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
)
