"""Defects of the data sets."""

from . import Mutant

MUTANTS = [
    Mutant("data/standardise.py", "off_mean**2", "off_mean", "data_standardise numpy"),
    Mutant("data/standardise.py", "off_mean + shift[:, 0]", "off_mean", "data_standardise numpy"),
    Mutant(
        "data/standardise.py",
        "off_mean + shift[:, 0], np.where(std > 0, std, 1.0)",
        "off_mean + shift[:, 0], std",
        "data_standardise constant",
    ),
    Mutant("data/standardise.py", "if key not in _known:", "if True:", "data_standardise once"),
    Mutant("data/idx.py", '">u4"', '"<u4"', "data_idx"),
    Mutant("data/idx.py", "size != prod(shape)", "size < prod(shape)", "data_idx unsound"),
    Mutant("data/idx.py", "file.read(prod(shape) + 1)", "file.read()", "data_idx_images early"),
    Mutant("data/idx.py", "if prod(shape) > largest:", "if False:", "data_idx_images early limit"),
    Mutant("data/idx_images.py", "else slice(first.stop, None)", "else slice(None)", "data_idx_images splits"),
    Mutant("data/idx_images.py", "self._images(train_images)[first])", "self._images(test_images))", "data_idx_images"),
    Mutant("data/idx_images.py", "lambda: every[first])", "lambda: every)", "data_idx_images splits"),
    Mutant("data/cifar10.py", "slice(first.stop, None)", "slice(None)", "data_cifar10 splits"),
    Mutant("data/cifar10.py", "labels(records[:, 0])", "labels(records[:, 1])", "data_cifar10 splits"),
    Mutant("data/cifar10.py", "if member.name in left", "if True", "data_cifar10 unpacks"),
    Mutant("data/higgs.py", "rows - 2 * tenth", "rows - tenth", "data_higgs tenths"),
    Mutant("data/higgs.py", "partial[max(partial)]", "partial[min(partial)]", "data_higgs longest"),
    Mutant("data/higgs.py", "lambda: table[:train, 1:]", "lambda: table[:, 1:]", "data_higgs tenths"),
    Mutant("data/higgs_cache.py", "np.isin(block[:, 0], (0, 1)).all()", "True", "data_higgs_cache malformed"),
    Mutant("data/higgs_cache.py", "        if done != rows:\n", "        if False:\n", "data_higgs lie"),
    Mutant("data/higgs_cache.py", ".{stat.st_size}-{stat.st_mtime_ns}", ".{stat.st_size}", "data_higgs_cache changes"),
    Mutant("data/pixel_sequences.py", "x.flatten(1)", "x.mT.flatten(1)", "data_pixel_sequences step"),
    Mutant("data/download.py", '"ab" if done else "wb"', '"wb"', "data_download"),
    Mutant("data/download.py", "done = 0  # the server", "pass  # the server", "data_download without"),
    Mutant("data/download.py", "if total is not None and done < total:", "if False:", "data_download breaks"),
    Mutant("data/download.py", "        if resumed:\n", "        if False:\n", "data_download another"),
    Mutant("data/download.py", "if done + len(block) > limit:", "if False:", "data_download little"),
    Mutant("data/download.py", "if total is not None and total > limit:", "if False:", "data_download early"),
    Mutant("data/download.py", "error.code < 500) or", "error.code < 600) or", "data_download busy"),
    Mutant("data/download.py", "or busy == BUSY:", "or busy == ATTEMPTS:", "data_download busy"),
    Mutant(
        "data/download.py",
        "if asked is None else asked, LONGEST_PAUSE)",
        "if asked is None else asked, 1e9)",
        "data_download within",
    ),
    Mutant(
        "data/download.py",
        "HTTPException, ValueError) as error:  # ValueError",
        "HTTPException) as error:  # ValueError",
        "data_download http",
    ),
    Mutant("data/download.py", "if c.isprintable() else", "if True else", "data_download http"),
    Mutant("data/download.py", "with naming(part), part", "with part", "data_download full"),
    Mutant("data/cifar10.py", "member.isreg() and ", "", "data_cifar10 plain"),
    Mutant("data/cifar10.py", " and member.size == self.batch_size", "", "data_cifar10 plain early"),
    Mutant("data/gunzip.py", "if self.done > self.limit:", "if False:", "data_gunzip limited"),
    Mutant("data/higgs.py", "if len(rest) > LONGEST_LINE:", "if False:", "data_higgs endless"),
    Mutant(
        "data/higgs_cache.py", "if digest.digest() != whole[end:].tobytes():", "if False:", "data_higgs_cache spoilt"
    ),
    Mutant(
        "data/higgs_cache.py", "hashlib.sha256(target.name.encode())", "hashlib.sha256()", "data_higgs_cache another"
    ),
    Mutant("data/higgs_cache.py", "file.readline(LONGEST_LINE)", "file.readline()", "data_higgs_cache early"),
    Mutant("data/atomic.py", "        with naming(self.path):\n", "        if True:\n", "data_atomic full"),
    Mutant("data/atomic.py", "time.time() - left.stat().st_mtime > STALE_AFTER", "True", "data_atomic killed"),
    Mutant("data/folders.py", "bool(folder.stat().st_mode & 0o222)", "True", "data_folders root"),
    Mutant("data/base.py", "if len(missing) < len(files) else []", "", "data_base loads"),
    Mutant("data/augment.py", "column.flip(0)", "column", "data_augment"),
    Mutant("data/augment.py", "2 * (2 * self.pad + 1) ** 2", "2 * (2 * self.pad) ** 2", "data_augment own"),
    Mutant("data/augment.py", "stride = width + 2 * pad", "stride = height + 2 * pad", "data_augment own"),
    Mutant("data/random_windows.py", "len(self.text) - self.context", "len(self.text)", "data_random_windows"),
    Mutant(
        "data/random_windows.py",
        "len(self.text) - self.context",
        "len(self.text) - 2 * self.context",
        "data_random_windows",
    ),
    Mutant("data/random_windows.py", "found[:, 1:].contiguous()", "found[:, :-1].contiguous()", "data_random_windows"),
    Mutant(
        "data/random_windows.py", "not torch.equal(self.text[1:], y.flatten())", "False", "data_random_windows no_text"
    ),
    Mutant("data/shakespeare.py", "tokens[1 : n * context + 1]", "tokens[: n * context]", "data_shakespeare"),
    Mutant("data/shakespeare.py", "n = (len(tokens) - 1) // context", "n = len(tokens) // context", "data_shakespeare"),
    Mutant("data/shakespeare.py", "SPLITS.index(split)", "0", "data_shakespeare"),
    Mutant(
        "data/shakespeare.py", "        if len(content) != size:\n", "        if False:\n", "data_shakespeare named"
    ),
    Mutant("data/block_order.py", "rows - self.blocks * block)", "rows)", "data_block_order"),
    Mutant("data/block_order.py", "[rows < self.rows]", "", "data_block_order"),
    Mutant("data/block_order.py", "[window - 1 : -1 : window]", "[window : -1 : window]", "data_block_order window"),
    Mutant("data/block_order.py", "{self.seed} {self.epoch} {what}", "{self.seed} {what}", "data_block_order seed"),
    Mutant("data/block_order.py", 'f"window {number}"', '"window"', "data_block_order seed"),
    Mutant("data/block_order.py", "np.array_split(rows, ranks)[rank]", "rows[rank::ranks]", "data_block_order shares"),
    Mutant("data/block_order.py", "self._held[0] != number:", "False:", "data_block_order"),
    Mutant("data/shards.py", "range(start * size,", "range(start,", "data_shards goes"),
    Mutant("data/shards.py", "numbers = numbers + self.start", "pass", "data_shards range"),
    Mutant(
        "data/shards.py", "slice(max(0, self.start - first), self.stop - first)", "slice(None)", "data_shards range"
    ),
    Mutant("data/shards.py", "self._count(len(rows) - len(own))", "pass", "data_shards unmapped"),
    Mutant("data/shards.py", "if self._read >= BLOCK * WINDOW:", "if False:", "data_shards unmapped"),
    Mutant("data/shards.py", "or len(table) != rows:", "or False:", "data_shards rows"),
    Mutant("data/shards.py", "if path.stat().st_size != size:", "if False:", "data_shards shortened"),
    Mutant("data/shard_writer.py", "if count == rows:", "if count >= 1:", "data_shard_writer depend"),
    Mutant("data/shard_writer.py", "if (_kind(x), _kind(y)) != first:", "if False:", "data_shard_writer fit"),
    Mutant("data/standardise.py", "+ off**2 * count * new / (count + new)", "", "data_standardise parts"),
    Mutant("data/standardise.py", "mean + off * new / (count + new) if", "mean + off / 2 if", "data_standardise parts"),
    Mutant("data/csv_table.py", "0 if all(_number(field) for field in fields) else 1", "0", "data_csv_table higgs"),
    Mutant(
        "training/sources.py", "self.dataset.order(seed, epoch)[:]", "self.dataset.order(seed, 0)[:]", "data_shards fit"
    ),
]
