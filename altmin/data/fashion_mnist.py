"""Fashion-MNIST: photographs of clothes in ten classes, in the format of MNIST."""

from altmin.data.idx_images import IdxImages

FASHION_MNIST = IdxImages(
    name="fashion-mnist",
    sample_shape=(1, 28, 28),
    classes=10,
    splits={"train": 50_000, "validation": 10_000, "test": 10_000},
    licence="MIT, Zalando SE",
    url="https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    download_size=30_878_645,
    sha256={
        "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
)
