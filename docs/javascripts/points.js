/* Points of two classes in the square from -1 to 1, from a source of random numbers. */

const Points = (() => {
  const KINDS = {
    moons: (t, label, noise) => {
      const angle = Math.PI * t;
      const [x, y] = label ? [0.5 - Math.cos(angle), 0.25 - Math.sin(angle)] : [Math.cos(angle) - 0.5, Math.sin(angle) - 0.25];
      return [0.6 * x + noise(), 0.95 * y + noise()];
    },
    circles: (t, label, noise) => {
      const [angle, radius] = [2 * Math.PI * t, label ? 0.75 : 0.3];
      return [radius * Math.cos(angle) + noise(), radius * Math.sin(angle) + noise()];
    },
    spiral: (t, label, noise) => {
      const [angle, radius] = [1.25 * 2 * Math.PI * t + label * Math.PI, 0.12 + 0.75 * t];
      return [radius * Math.cos(angle) + noise() / 2, radius * Math.sin(angle) + noise() / 2];
    },
    xor: (t, label, noise, next) => {
      const [x, y] = [0.15 + 0.7 * t, 0.15 + 0.7 * next()];
      const side = next() < 0.5 ? 1 : -1;
      return [side * x, (label ? side : -side) * y];
    },
  };

  /* {x: n rows of two numbers, y: n labels 0 or 1} */
  function create(kind, n, next) {
    const noise = () => 0.16 * (next() + next() - 1);
    const y = Array.from({ length: n }, (_, i) => i % 2);
    const x = y.map((label, i) => KINDS[kind](Math.floor(i / 2) / (n / 2 - 1), label, noise, next));
    return { x, y };
  }

  return { create };
})();
