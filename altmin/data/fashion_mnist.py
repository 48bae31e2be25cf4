"""Fashion-MNIST: photographs of clothes in ten classes, in the format of MNIST."""

from altmin.data.idx_images import IdxImages

FASHION_MNIST = IdxImages(
    name="fashion-mnist",
    sample_shape=(1, 28, 28),
    classes=10,
    splits={"train": 50_000, "validation": 10_000, "test": 10_000},
    licence="MIT, Zalando SE",
    url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    download_size=30_878_645,
    md5={
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
)
