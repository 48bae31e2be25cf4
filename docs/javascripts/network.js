/* Alternating minimization for small tanh nets with cross-entropy, as altmin takes a step, and backprop beside it.

A net is a list of blocks {W, b}; the first computes W x + b, each later one W tanh(c) + b of the code c below it. Samples
are rows. The letters are those of altmin/codes/gradient.py: delta is the gradient that reaches a block's output, in the
scale of the mean loss, and goes down as g = J^T delta; a is the length of a code's move along g, m the product of the
lengths of the codes above, r what is left for a block's weights. Nothing here knows of a page. */

const AltMin = (() => {
  const TINY = 1e-30;
  const EPS = 2 ** -52;
  const ROUNDING = 32; // of cross-entropy, in units of EPS

  const over = (a, b) => a / Math.max(b, TINY);
  const map = (A, f) => A.map((row, i) => row.map((value, j) => f(value, i, j)));
  const along = (A, s, B) => map(A, (value, i, j) => value + s * B[i][j]);
  const inner = (A, B) => A.reduce((sum, row, i) => sum + row.reduce((s, value, j) => s + value * B[i][j], 0), 0);
  const norm = (A) => Math.sqrt(inner(A, A));
  const size = (A) => A.length * A[0].length;

  /* X W^T, the change of W a + b when a changes by X */
  const times = (X, W) => X.map((x) => W.map((w) => w.reduce((s, value, j) => s + value * x[j], 0)));
  /* X W, a row of what each output asks of the inputs */
  const back = (X, W) => X.map((x) => W[0].map((_, j) => W.reduce((s, w, i) => s + w[j] * x[i], 0)));
  /* the gradient of <r, W a + b> with respect to W and b */
  const gradient = (r, a) => ({
    W: r[0].map((_, i) => a[0].map((__, j) => r.reduce((s, row, n) => s + row[i] * a[n][j], 0))),
    b: r[0].map((_, i) => r.reduce((s, row) => s + row[i], 0)),
  });

  /* Forward pass: what each block is given, and what it computes (the codes and, last, the output). */
  function encode(net, x) {
    const inputs = [], values = [];
    for (const { W, b } of net) {
      inputs.push(values.length ? map(values.at(-1), Math.tanh) : x);
      values.push(times(inputs.at(-1), W).map((row) => row.map((value, i) => value + b[i])));
    }
    return { inputs, values };
  }

  /* The mean loss at an output, its gradient there, and products with its Hessian (diag(p) - p p^T) / n. */
  function crossEntropy(output, y) {
    const n = y.length;
    let value = 0;
    const p = output.map((row, i) => {
      const top = Math.max(...row);
      const exps = row.map((each) => Math.exp(each - top));
      const sum = exps.reduce((s, each) => s + each, 0);
      value += (Math.log(sum) + top - row[y[i]]) / n;
      return exps.map((each) => each / sum);
    });
    return {
      value,
      delta: map(p, (each, i, j) => (each - (j === y[i] ? 1 : 0)) / n),
      hessian: (q) => q.map((row, i) => {
        const mean = row.reduce((s, each, j) => s + p[i][j] * each, 0);
        return row.map((each, j) => (p[i][j] * (each - mean)) / n);
      }),
    };
  }

  /* Length of a code's move along g: the best one of a quadratic model, bounded so that a |H Jg| <= share |delta|. */
  function length(g, Jg, HJg, delta, kappa, share) {
    const best = over(inner(g, g), inner(Jg, HJg) + kappa * inner(g, g));
    const bound = over(share * norm(delta), norm(HJg));
    return { a: Math.min(best, bound), best, bound };
  }

  /* Moves the codes of a batch from the last to the first. options: share, order, mu.
  Returns the loss and, of each block, first to last: delta, what is asked of it; r, what is left for its weights; input,
  with which it learns; grad, the gradient of its weights; and of its own code, if it has one, the move and what the line
  search found. Changes nothing. */
  function moveCodes(net, x, y, { share, order, mu }) {
    const { inputs, values } = encode(net, x);
    const top = crossEntropy(values.at(-1), y);
    const blocks = net.map(() => ({}));
    let delta = top.delta, m = 1;
    for (let l = net.length - 1; l >= 0; l--) {
      const block = blocks[l];
      block.delta = delta;
      if (l === 0) {
        Object.assign(block, { r: delta, input: x });
        break;
      }
      const last = l === net.length - 1, c = values[l - 1], { W, b } = net[l];
      const slope = (u) => map(u, (value, i, j) => value * (1 - inputs[l][i][j] ** 2));
      const g = slope(back(delta, W));
      const Jg = times(slope(g), W);
      const kappa = last ? (2 * mu) / y.length : 1;
      const found = length(g, Jg, last ? top.hessian(Jg) : Jg, delta, kappa, share);
      const e = m * found.a, moved = map(along(c, -e, g), Math.tanh);
      let r, rises;
      if (last) {
        const at = crossEntropy(times(moved, W).map((row) => row.map((value, i) => value + b[i])), y);
        const slack = EPS * ROUNDING + 16 * EPS * Math.abs(top.value);
        r = at.delta;
        rises = at.value + (kappa / 2) * found.a ** 2 * inner(g, g) > top.value + slack;
      } else {
        // (tanh c - tanh(c - e g)) / e without cancellation
        const quotient = map(g, (value, i, j) =>
          e > TINY ? (Math.tanh(e * value) / e) * (1 - inputs[l][i][j] * moved[i][j]) : slope(g)[i][j]);
        r = along(delta, -found.a, times(quotient, W));
        const before = inner(delta, delta) / 2;
        rises = inner(r, r) / 2 + found.a ** 2 * inner(g, g) / 2 > before * (1 + 16 * EPS);
      }
      const a = rises ? 0 : found.a;
      Object.assign(block, rises ? { r: delta, input: inputs[l] } : { r, input: moved });
      if (order === "weights-first" && !last) block.r = delta;
      m *= a;
      blocks[l - 1].code = { g, move: map(g, (value) => -m * value), a, bounded: found.bound < found.best, scale: m };
      delta = g;
    }
    for (const block of blocks) block.grad = gradient(block.r, block.input);
    return { loss: top.value, blocks, values, inputs };
  }

  /* The gradients of the mean loss, block by block. */
  function backprop(net, x, y) {
    const { inputs, values } = encode(net, x);
    const { value, delta } = crossEntropy(values.at(-1), y);
    const grads = [];
    let d = delta;
    for (let l = net.length - 1; l >= 0; l--) {
      grads.unshift(gradient(d, inputs[l]));
      if (l) d = map(back(d, net[l].W), (each, i, j) => each * (1 - inputs[l][i][j] ** 2));
    }
    return { loss: value, grads };
  }

  /* torch's Adam, with its default options. */
  function adam(net) {
    const zeros = () => net.map(({ W, b }) => ({ W: map(W, () => 0), b: b.map(() => 0) }));
    const first = zeros(), second = zeros();
    let t = 0;
    return (grads, lr) => {
      t += 1;
      const [one, two] = [1 - 0.9 ** t, 1 - 0.999 ** t];
      const move = (p, g, u, v, i) => {
        u[i] = 0.9 * u[i] + 0.1 * g[i];
        v[i] = 0.999 * v[i] + 0.001 * g[i] ** 2;
        p[i] -= (lr / one) * u[i] / (Math.sqrt(v[i] / two) + 1e-8);
      };
      net.forEach(({ W, b }, l) => {
        const [g, u, v] = [grads[l], first[l], second[l]];
        W.forEach((row, i) => row.forEach((_, j) => move(row, g.W[i], u.W[i], v.W[i], j)));
        b.forEach((_, i) => move(b, g.b, u.b, v.b, i));
      });
    };
  }

  /* mu after a batch, as altmin's default Penalty has it: 0.2 more a batch, at most 100. */
  const grown = (mu) => Math.min(mu + 0.2, 100);

  const flat = ({ W, b }) => [[...W.flat(), ...b]];
  const cosine = (p, q) => over(inner(flat(p), flat(q)), norm(flat(p)) * norm(flat(q)));
  const ratio = (p, q) => over(norm(flat(p)), norm(flat(q)));
  const rms = (A) => norm(A) / Math.sqrt(size(A));

  /* Numbers in [0, 1) from a seed (mulberry32). */
  function random(seed) {
    let state = seed >>> 0;
    return () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = Math.imul(state ^ (state >>> 15), state | 1);
      t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
    };
  }

  /* A net with torch's initial distribution, uniform within 1 / sqrt(inputs). */
  function create(sizes, next) {
    return sizes.slice(1).map((outputs, l) => {
      const draw = () => (2 * next() - 1) / Math.sqrt(sizes[l]);
      return { W: Array.from({ length: outputs }, () => Array.from({ length: sizes[l] }, draw)),
        b: Array.from({ length: outputs }, draw) };
    });
  }

  return { adam, backprop, cosine, create, crossEntropy, encode, grown, moveCodes, norm, random, ratio, rms };
})();

if (typeof module !== "undefined") module.exports = AltMin;
