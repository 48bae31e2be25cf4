/* What both parts of the interactive page draw with: a canvas in the page's colours, sharp at any size, and curves. */

const Drawing = (() => {
  const style = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();
  const colours = () => ({
    weights: style("--weights"), codes: style("--codes"), text: style("--md-default-fg-color"),
    faint: style("--md-default-fg-color--lightest"), soft: style("--md-default-fg-color--light"),
    back: style("--md-default-bg-color"),
  });

  /* The context of a canvas as large as it is shown, cleared; width and height in CSS pixels. */
  function start(canvas) {
    const { width: given, height: tall } = canvas.dataset.width ? { width: +canvas.dataset.width, height: +canvas.dataset.height } : canvas;
    Object.assign(canvas.dataset, { width: given, height: tall });
    const width = canvas.clientWidth || given, height = Math.max((width * tall) / given, Math.min(tall, 170));
    const scale = window.devicePixelRatio || 1;
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.font = "12px system-ui, sans-serif";
    return { context, width, height, ...colours() };
  }

  /* Curves [{name, points: [[x, y], ...], colour, dashed}] on axes with labels. ticks: [[x, text], ...]. */
  function plot(canvas, curves, { ticks, title, logarithmic = false, mark = null, digits = (v) => v.toPrecision(3) }) {
    const { context, width, height, text, faint, soft, codes } = start(canvas);
    const box = { left: 58, right: width - 12, top: 24, bottom: height - 26 };
    const all = curves.flatMap(({ points }) => points);
    const xs = [...all.map(([x]) => x), ...ticks.map(([x]) => x)], f = logarithmic ? Math.log10 : (v) => v;
    const ys = all.map(([, y]) => f(y));
    const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
    const pad = 0.06 * (Math.max(...ys) - Math.min(...ys)) || 1e-6;
    const [y0, y1] = [Math.min(...ys) - pad, Math.max(...ys) + pad];
    const X = (x) => box.left + ((x - x0) / (x1 - x0 || 1)) * (box.right - box.left);
    const Y = (y) => box.bottom - ((f(y) - y0) / (y1 - y0)) * (box.bottom - box.top);
    context.strokeStyle = faint;
    context.fillStyle = soft;
    context.textAlign = "right";
    for (let i = 0; i <= 4; i++) {
      const value = y0 + ((y1 - y0) * i) / 4, at = box.bottom - ((box.bottom - box.top) * i) / 4;
      context.beginPath();
      context.moveTo(box.left, at);
      context.lineTo(box.right, at);
      context.stroke();
      context.fillText(digits(logarithmic ? 10 ** value : value), box.left - 6, at + 4);
    }
    context.textAlign = "center";
    for (const [x, label] of ticks) context.fillText(label, Math.min(Math.max(X(x), box.left), box.right - 8), height - 8);
    if (mark !== null) {
      context.strokeStyle = codes;
      context.setLineDash([2, 3]);
      context.beginPath();
      context.moveTo(X(mark), box.top);
      context.lineTo(X(mark), box.bottom);
      context.stroke();
    }
    context.textAlign = "left";
    context.fillStyle = text;
    context.fillText(title, 4, 14);
    let key = box.right;
    for (const { name, points, colour, dashed, dots } of curves) {
      context.strokeStyle = context.fillStyle = colour;
      context.lineWidth = 2;
      context.setLineDash(dashed ? [6, 4] : []);
      context.beginPath();
      points.forEach(([x, y], i) => (i ? context.lineTo(X(x), Y(y)) : context.moveTo(X(x), Y(y))));
      context.stroke();
      context.setLineDash([]);
      if (dots) for (const [x, y] of points) context.fillRect(X(x) - 3, Y(y) - 3, 6, 6);
      key -= context.measureText(name).width + 14;
      context.fillText(name, key, 14);
      context.lineWidth = 1;
    }
  }

  /* Calls draw now, when the window changes its size, and when the colours change. */
  function always(draw) {
    draw();
    window.addEventListener("resize", draw);
    new MutationObserver(draw).observe(document.body, { attributes: true, attributeFilter: ["data-md-color-scheme"] });
  }

  return { always, colours, plot, start };
})();
