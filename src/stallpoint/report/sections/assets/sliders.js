// What if, by sliders: iteration times on a grid of factors, interpolated as stallpoint.models.answers.what_if does.

let whatIf = [];  // curves: {name, network, hardware, ticks: [bytes, compute, latency, transfer], points}

// Seconds of a point at factors in the order of the ticks: linear in the logarithms, along one axis after the other.
function interpolated(ticks, seconds, factors) {
  let values = seconds.map(Math.log);
  ticks.forEach((at, axis) => {
    const factor = Math.min(Math.max(factors[axis], at[0]), at[at.length - 1]);
    const below = Math.max(0, Math.min(at.findLastIndex(tick => tick <= factor), at.length - 2));
    const part = Math.log(factor / at[below]) / Math.log(at[below + 1] / at[below]);
    const size = values.length / at.length;
    const row = i => values.slice(i * size, (i + 1) * size);
    const above = row(below + 1);
    values = row(below).map((value, i) => (1 - part) * value + part * above[i]);
  });
  return Math.exp(values[0]);
}

// Samples per second of a curve on `ranks`; undefined where its mini-batch is no whole number for every worker.
function samplesPerSecond(curve, ranks, {bandwidth = 1, latency = 1, compute_speed = 1, gradient_bytes = 1, batch = 1}) {
  const point = curve.points.find(point => point.ranks === ranks && point.batch === batch);
  const factors = [gradient_bytes, 1 / compute_speed, latency, 1 / bandwidth];
  return point && point.samples / interpolated(curve.ticks, point.seconds, factors);
}

const sliderForm = document.querySelector("form.sliders");
const asFactor = value => `× ${Number(value.toPrecision(2))}`;

function showSliders() {
  if (!sliderForm) return;
  const changes = {batch: Number(sliderForm.elements.batch.value)};
  for (const input of sliderForm.querySelectorAll("[type=range]")) {
    changes[input.name] = 10 ** Number(input.value);
    sliderForm.elements[`${input.name}-shown`].textContent = asFactor(changes[input.name]);
    input.setAttribute("aria-valuetext", asFactor(changes[input.name]));
  }
  const rows = whatIf.filter(curve => isChosen(curve)).flatMap(curve =>
    curve.points.filter(point => point.batch === changes.batch).map(({ranks}) => {
      const before = samplesPerSecond(curve, ranks, {}), after = samplesPerSecond(curve, ranks, changes);
      const said = rate => rate === undefined ? "" : Number(rate.toPrecision(3));
      return [curve.name, ranks, said(before), said(after), before && after ? asFactor(after / before) : ""];
    }));
  const head = ["curve", "workers", "samples/s as it is", "samples/s then", "gain"];
  document.getElementById("what-if-table").replaceChildren(tableOf(head, rows));
}

sliderForm?.addEventListener("input", showSliders);
