"use strict";
let specs, themes;
const dark = matchMedia("(prefers-color-scheme: dark)");
const narrow = matchMedia("(max-width: 900px)");
const shown = new Map();

// On a narrow page panels stand below one another, no wider than the page, and so do the legends.
function fitted(node, width) {
  if (Array.isArray(node)) return node.map(item => fitted(item, width));
  if (node === null || typeof node !== "object") return node;
  return Object.fromEntries(Object.entries(node).map(([key, value]) => {
    if (key === "datasets") return [key, value];
    if (key === "columns" && typeof value === "number") return [key, 1];
    if (key === "width" && typeof value === "number") return [key, Math.min(value, width)];
    return [key, fitted(value, width)];
  }));
}

async function draw(name) {
  const place = document.getElementById("chart-" + name);
  const theme = dark.matches ? themes.dark : themes.light;
  const legend = {...theme.legend, columns: 2, layout: {top: {direction: "vertical", anchor: "start", margin: 6}}};
  const small = narrow.matches;
  const previous = shown.get(name);
  if (previous) previous.finalize();
  shown.set(name, await vegaEmbed(place, small ? fitted(specs[name], place.clientWidth - 120) : specs[name], {
    config: small ? {...theme, legend} : theme,
    renderer: "svg",
    actions: {export: true, source: true, compiled: false, editor: false},
    tooltip: {theme: dark.matches ? "dark" : "light"},
  }));
}

async function drawAll() {
  for (const name of Object.keys(specs)) {
    try {
      await draw(name);
    } catch (error) {
      console.error(name, error);
      document.getElementById("chart-" + name).textContent = "This chart could not be drawn: " + error;
    }
  }
  document.documentElement.dataset.drawn = Object.keys(specs).length;
}

// Base64 of compressed JSON.
async function unpacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), letter => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

async function start() {
  specs = await unpacked("specs");
  themes = await unpacked("themes");
  await drawAll();
}

let queue = start();
for (const query of [dark, narrow]) query.addEventListener("change", () => { queue = queue.then(drawAll); });
