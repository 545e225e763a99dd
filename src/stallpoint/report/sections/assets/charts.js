// Charts: Vega-Lite specs, filtered, fitted to the page, drawn as SVG. Their colours are CSS variables, so that light,
// dark and print need no second drawing.

const MOST_PANELS = 12;
const PRINT_WIDTH = {page: 680, card: 300};  // in CSS pixels: A4 with its margins, and a card on it
const AXIS = 66, SPACING = 24;
const NARROW = 600;
const LEAST_PANEL = 220, LEAST_PRINTED = 130;

let charts = {};        // name -> spec
let config = {};        // how they look on this page, and on paper
const drawn = new Map();  // name -> {view, first: first of the panels shown}

const placeOf = name => document.getElementById("chart-" + name);
const rowsOf = spec => Object.values(spec.datasets).flat();
const withRows = (spec, rows) => ({
  ...spec,
  datasets: Object.fromEntries(Object.entries(spec.datasets).map(([id, all]) => [id, rows(all)])),
});

// Rows of a chart, whose data come in columns; what a row lacks is null there.
function inRows(spec) {
  const rows = columns => {
    const all = Object.entries(columns);
    return (all[0]?.[1] ?? []).map((_, i) => Object.fromEntries(
      all.flatMap(([name, values]) => values[i] === null ? [] : [[name, values[i]]])));
  };
  return withRows(spec, rows);
}

// --- which rows ------------------------------------------------------------------------------------

// Rows of what was chosen. Ideal lines are of no network: they stay where something else of their panel does.
function chosenRows(rows) {
  const owned = row => FILTERS.some(name => row[name]);
  if (!rows.some(owned)) return rows;
  const kept = rows.filter(isChosen);
  const panels = new Set(kept.filter(owned).map(row => row.panel));
  return kept.filter(row => panels.has(row.panel));
}

// Where some panels lead (those of the fastest curves), others are shown on demand.
function leading(name, spec) {
  const place = placeOf(name).parentNode.querySelector(".others");
  if (!place) return spec;
  const panels = new Set(rowsOf(spec).map(row => row.panel));
  const leads = new Set(rowsOf(spec).filter(row => row.lead).map(row => row.panel));
  const others = panels.size - leads.size, all = drawn.get(name)?.all;
  place.hidden = !leads.size || !others;
  place.querySelector("button").textContent =
    all ? "Only the fastest curve of each network and verdict" : `Other curves too (${others} more)`;
  return place.hidden || all ? spec : withRows(spec, rows => rows.filter(row => leads.has(row.panel)));
}

function toggleOthers(name) {
  drawn.set(name, {...drawn.get(name), all: !drawn.get(name).all, first: 0});
  return draw(name);
}

// A chart with a menu of its panels shows one of them, a chart of many panels some at a time.
function onePage(name, spec) {
  const panels = [...new Set(rowsOf(spec).map(row => row.panel))];
  const menu = spec.params?.find(param => param.bind?.options);
  if (menu) {
    const options = menu.bind.options.filter(panel => panels.includes(panel));
    const value = options.includes(menu.value) ? menu.value : options[0];
    return {...spec, params: [{...menu, value, bind: {...menu.bind, options}}]};
  }
  const pager = placeOf(name).parentNode.querySelector(".pager");
  if (pager) pager.hidden = panels.length <= MOST_PANELS;
  if (panels.length <= MOST_PANELS) return spec;
  const of = drawn.get(name) ?? {};
  const first = of.first < panels.length ? of.first : 0;
  const last = Math.min(first + MOST_PANELS, panels.length);
  pager.querySelector("output").textContent = `panels ${first + 1} to ${last} of ${panels.length}`;
  pager.querySelector("[value='-1']").disabled = first === 0;
  pager.querySelector("[value='1']").disabled = last === panels.length;
  const page = new Set(panels.slice(first, last));
  return withRows(spec, rows => rows.filter(row => page.has(row.panel)));
}

function turnPage(name, step) {
  const of = drawn.get(name);
  of.first = Math.max(0, (of.first ?? 0) + step * MOST_PANELS);
  return draw(name);
}

// What is shown of a chart: rows that were chosen, panels that lead, and of those a page.
const shownOf = name => onePage(name, leading(name, withRows(charts[name], chosenRows)));

// --- how large -------------------------------------------------------------------------------------

// Panels side by side as far as they fit, legends in as many columns as they need.
function fitted(spec, width, least, axis) {
  const fit = (node, room) => {
    if (Array.isArray(node)) return node.map(item => fit(item, room));
    if (node === null || typeof node !== "object") return node;
    const columns = node.spec ? columnsOf(node, room, least) : 1;
    const inner = node.spec ? (room + SPACING) / columns - SPACING : room;
    return Object.fromEntries(Object.entries(node).map(([key, value]) => {
      if (key === "datasets") return [key, value];
      if (key === "columns" && node.spec) return [key, columns];
      if (key === "width" && typeof value === "number") return [key, Math.floor(Math.min(1.25 * value, inner - axis))];
      if (key === "legend" && value) return [key, {...value, ...legendColumns(node.scale?.domain ?? [], width)}];
      return [key, fit(value, inner)];
    }));
  };
  return fit(spec, width);
}

function columnsOf(facet, room, least) {
  return Math.max(1, Math.min(facet.columns ?? 1, Math.floor((room + SPACING) / (least + AXIS + SPACING))));
}

function legendColumns(labels, width) {
  const each = 35 + 5.5 * Math.max(0, ...labels.map(label => String(label).length));
  const columns = Math.max(1, Math.floor((width - 30) / each));
  return columns < labels.length ? {columns, labelLimit: width - 60} : {};
}

// --- drawing ---------------------------------------------------------------------------------------

async function draw(name, width = placeOf(name).clientWidth, least = LEAST_PANEL) {
  const place = placeOf(name);
  const spec = shownOf(name);
  drawn.get(name)?.view?.finalize();
  const data = place.parentNode.querySelector(".data");  // there is none to save where a text says what is missing
  if (data) data.hidden = !rowsOf(spec).some(row => "panel" in row);
  const state = {first: drawn.get(name)?.first ?? 0, all: drawn.get(name)?.all};
  drawn.set(name, state);
  if (!rowsOf(spec).length) {
    place.textContent = "This chart has nothing of what was chosen.";
    return;
  }
  try {
    const look = width < NARROW ? narrow(config.page, width) : config.page;
    state.view = await embed(place, fitted(spec, width, least, AXIS), look);
    const beyond = place.scrollWidth - Math.max(width, place.clientWidth);  // long labels of an axis or a panel
    if (beyond > 0) {
      state.view.finalize();
      state.view = await embed(place, fitted(spec, width, least, AXIS + Math.min(beyond, width / 3)), look);
    }
    reachable(place);
  } catch (error) {
    console.error(name, error);
    place.textContent = "This chart could not be drawn: " + error;
  }
}

// For readers who use no mouse or no eyes: what scrolls takes the focus, and what has no name is no picture.
function reachable(place) {
  if (place.scrollWidth > place.clientWidth) place.tabIndex = 0;
  else place.removeAttribute("tabindex");
  for (const group of place.querySelectorAll("g[role=graphics-symbol]:not([aria-label])")) group.removeAttribute("role");
}

// Legends below one another, and titles of panels no longer than the page is wide.
function narrow(look, width) {
  const layout = {top: {direction: "vertical", anchor: "start", margin: 6}};
  return {...look, legend: {...look.legend, layout}, header: {...look.header, labelLimit: width - 40}};
}

async function embed(place, spec, look) {
  const options = {config: look, renderer: "svg", actions: false, defaultStyle: false, tooltip: showTooltip};
  return (await vegaEmbed(place, spec, options)).view;
}

// One after the other, in the order of the page, which stays alive in between; a new round ends the one before.
let round = 0;
async function drawAll() {
  const mine = ++round;
  delete document.documentElement.dataset.drawn;
  for (const name of Object.keys(charts)) {
    if (placeOf(name).checkVisibility()) await draw(name);
    else placeOf(name).replaceChildren();
    await new Promise(resolve => setTimeout(resolve));
    if (mine !== round) return;
  }
  document.documentElement.dataset.drawn = Object.keys(charts).length;
}

// Charts of a section that was closed when the others were drawn.
async function drawMissing(section) {
  for (const name of Object.keys(charts)) {
    const place = placeOf(name);
    if (section.contains(place) && place.checkVisibility() && !place.hasChildNodes()) await draw(name);
  }
}

// Nothing here waits for anything but finished promises: the charts are ready before the browser lays out the print.
function drawForPrint() {
  for (const name of Object.keys(charts)) {
    if (placeOf(name).checkVisibility()) draw(name, PRINT_WIDTH[placeOf(name).closest(".card") ? "card" : "page"], LEAST_PRINTED);
  }
}

// --- tooltips --------------------------------------------------------------------------------------

function showTooltip(handler, event, item, value) {
  const box = document.getElementById("tooltip");
  box.hidden = !value || typeof value !== "object";
  if (box.hidden) return;
  box.replaceChildren(...Object.entries(value).map(([title, text]) => {
    const line = document.createElement("div"), head = document.createElement("span");
    head.textContent = title;
    line.append(head, String(text));
    return line;
  }));
  const {width, height} = box.getBoundingClientRect();
  const left = event.clientX + 14 + width < innerWidth ? event.clientX + 14 : Math.max(4, event.clientX - 14 - width);
  const top = event.clientY + 14 + height < innerHeight ? event.clientY + 14 : Math.max(4, event.clientY - 14 - height);
  Object.assign(box.style, {left: `${left}px`, top: `${top}px`});
}

// --- downloads -------------------------------------------------------------------------------------

const INTERNAL = new Set(["order", "lead", "bottom", "top", "middle", "low_end", "high_end", "shift", "written"]);

// All rows of what was chosen, also those of panels not on show.
function chartData(name) {
  const rows = rowsOf(withRows(charts[name], chosenRows));
  const columns = [...new Set(rows.flatMap(Object.keys))].filter(column => !INTERNAL.has(column));
  return {columns, rows: rows.map(row => columns.map(column => row[column] ?? ""))};
}

// The chart as it is shown, on white.
async function picture(name, format) {
  const spec = {...shownOf(name), title: placeOf(name).dataset.title};
  const view = await embed(document.createElement("div"), spec, config.paper);
  const result = format === "svg"
    ? new Blob([await view.toSVG()], {type: "image/svg+xml"})
    : await blobOf(await view.toCanvas(2));
  view.finalize();
  return result;
}

const blobOf = canvas => new Promise(resolve => canvas.toBlob(resolve, "image/png"));

async function download(name, format) {
  const blob = format === "csv" ? csv(chartData(name)) : await picture(name, format);
  save(blob, `${document.body.dataset.study}-${name}.${format}`);
}
