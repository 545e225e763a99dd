// What the reader chose: filters and colours, kept in the address behind the anchor (#speedup?network=alexnet).
// Nothing chosen means everything is shown.

const FILTERS = ["network", "hardware", "storage"];
const state = {network: new Set(), hardware: new Set(), storage: new Set(), theme: ""};

// Rows and elements without a value for a filter belong to all of them.
function isChosen(values) {
  return FILTERS.every(name => !state[name].size || !values[name] || state[name].has(values[name]));
}

function readAddress() {
  const [, query] = location.hash.split("?");
  if (query === undefined) return writeAddress();  // a link to a section, which says nothing about filters
  const parameters = new URLSearchParams(query);
  for (const name of FILTERS) state[name] = new Set(parameters.getAll(name));
  state.theme = parameters.get("theme") ?? "";
}

function writeAddress() {
  const parameters = new URLSearchParams(FILTERS.flatMap(name => [...state[name]].map(value => [name, value])));
  if (state.theme) parameters.set("theme", state.theme);
  const anchor = location.hash.split("?")[0] || "#";
  const hash = anchor + (parameters.size ? "?" + parameters : "");
  if (hash !== (location.hash || "#")) history.replaceState(null, "", hash);
}

function anchored() {
  return document.getElementById(decodeURIComponent(location.hash.slice(1).split("?")[0]));
}

// --- filters ---------------------------------------------------------------------------------------

const boxes = [...document.querySelectorAll("#filters input")];

function showFilters() {
  for (const box of boxes) box.checked = state[box.name].has(box.value);
  for (const element of document.querySelectorAll("[data-network], [data-hardware], [data-storage]")) {
    element.hidden = !isChosen(element.dataset);
  }
  // A card is there as long as something in it is.
  for (const card of document.querySelectorAll(".card")) {
    card.hidden = !isChosen(card.dataset) || !card.querySelector(".verdict:not([hidden])");
  }
  const curves = [...document.querySelectorAll("#curves tbody tr")];
  const shown = curves.filter(row => !row.hidden).length;
  document.getElementById("shown").textContent =
    shown < curves.length ? `${shown} of ${curves.length} curves chosen` : `all ${curves.length} curves`;
  document.getElementById("reset").disabled = FILTERS.every(name => !state[name].size);
}

// --- colours ---------------------------------------------------------------------------------------

const systemDark = matchMedia("(prefers-color-scheme: dark)");

function showTheme() {
  const theme = state.theme || (systemDark.matches ? "dark" : "light");
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = theme === "dark" ? "Light colours" : "Dark colours";
}
