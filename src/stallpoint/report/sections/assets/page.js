// Starts the page, and listens to the reader.

// A text that is on the page compressed, in base64: fetched from an address that holds the data itself.
async function unpacked(id) {
  const packed = await fetch("data:application/gzip;base64," + document.getElementById(id).textContent);
  return new Response(packed.body.pipeThrough(new DecompressionStream("gzip")));
}

const data = async id => (await unpacked(id)).json();

// Scripts of Vega-Embed, which run as soon as they are part of the page.
async function library() {
  const script = document.createElement("script");
  script.textContent = await (await unpacked("libraries")).text();
  document.head.append(script);
}

// Lays out all of the page, as a link into it needs.
function opened() {
  delete document.documentElement.dataset.opening;
}
if (anchored()) opened();

function show() {
  showTheme();
  showFilters();
  fillOpenTables();
  return drawAll();
}

function choose(change) {
  change();
  writeAddress();
  return show();
}

// Sections below the answer are closed at first where the screen is small.
const folds = [...document.querySelectorAll("main > section > details")];
const unfold = () => folds.filter(one => !one.open).map(one => { one.open = true; return one; });
const small = matchMedia("(max-width: 900px)");
small.addEventListener("change", () => small.matches ? repeatHeads() : unfold());
for (const one of folds) one.open = !small.matches;

// Tables whose rows have names are read down a small page: each cell says the head of its column.
function repeatHeads() {
  for (const table of document.querySelectorAll("main table:has(thead):has(tbody th)")) {
    const heads = [...table.tHead.rows[0].cells].map(cell => cell.textContent);
    for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, i) => { if (i) cell.dataset.head = heads[i]; });
  }
}
if (small.matches) repeatHeads();

// Buttons that save what is drawn, as a page without scripts draws nothing.
for (const place of document.querySelectorAll("[data-saves]")) {
  const chart = place.dataset.saves, {title} = placeOf(chart).dataset;
  for (const [value, what] of Object.entries({csv: "data", svg: "picture", png: "picture"})) {
    const textContent = value.toUpperCase(), ariaLabel = `${title}: save ${what} as ${textContent}`;
    const button = Object.assign(document.createElement("button"), {type: "button", value, textContent, ariaLabel});
    Object.assign(button.dataset, {action: "download", chart});
    place.append(button);
  }
}

// Opens what a link leads to, and all around it.
function reveal(target) {
  if (!target) return;
  for (let at = target.querySelector(":scope > details") ?? target; at; at = at.parentElement.closest("details")) {
    if (at.matches("details")) at.open = true;
  }
  target.scrollIntoView();
}

const wide = matchMedia("(min-width: 1100px)"), menu = document.getElementById("menu");
const openMenu = () => { menu.open = wide.matches; };
wide.addEventListener("change", openMenu);
openMenu();

document.addEventListener("change", event => {
  const box = event.target;
  if (boxes.includes(box)) choose(() => state[box.name][box.checked ? "add" : "delete"](box.value));
});

document.addEventListener("click", event => {
  reveal(document.getElementById(event.target.closest("a[href^='#']")?.hash.slice(1)));
  const button = event.target.closest("button");
  if (!button) return;
  const {chart, table, action} = button.dataset;
  if (action === "download") download(chart, button.value);
  if (action === "page") turnPage(chart, Number(button.value));
  if (action === "others") toggleOthers(chart);
  if (action === "table") save(csv(chosenTable(table)), `${document.body.dataset.study}-${table}.csv`);
  if (button.id === "reset") choose(() => FILTERS.forEach(name => state[name].clear()));
  if (button.id === "theme") {
    state.theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    writeAddress();
    showTheme();
  }
  if (button.id === "print") printed("summary");
  if (button.id === "print-all") printed("all");
});

// Two pages with the answer and why, or the whole page.
function printed(what) {
  document.documentElement.dataset.print = what;
  print();
}

document.addEventListener("toggle", event => {
  const details = event.target;
  if (!details.open) return;
  if (details.dataset.table) fillRawTable(details);
  if (details.dataset.chart) fillChartTable(details);
  if (folds.includes(details)) drawMissing(details);
}, true);

document.addEventListener("keydown", event => {
  if (event.key === "Escape") document.getElementById("tooltip").hidden = true;
});

systemDark.addEventListener("change", showTheme);
let closed = [];
addEventListener("beforeprint", () => {
  closed = unfold();
  drawForPrint();
});
addEventListener("afterprint", () => {
  for (const one of closed) one.open = false;
  delete document.documentElement.dataset.print;
  drawAll();
});
addEventListener("hashchange", () => {
  readAddress();
  reveal(anchored());
  show();
});

// Another width of the page is another layout of its charts.
let width = document.documentElement.clientWidth, waiting;
new ResizeObserver(() => {
  if (document.documentElement.clientWidth === width) return;
  width = document.documentElement.clientWidth;
  clearTimeout(waiting);
  waiting = setTimeout(drawAll, 150);
}).observe(document.documentElement);

async function start() {
  readAddress();
  showTheme();
  showFilters();
  [charts, config] = await Promise.all([data("charts"), data("config"), library()]);
  for (const [name, spec] of Object.entries(charts)) charts[name] = inRows(spec);
  data("tables").then(found => {
    tables = found;
    fillOpenTables();
  });
  await Promise.all(["400", "700"].map(weight => document.fonts.load(`${weight} 12px Inter`)));
  reveal(anchored());
  await show();
  opened();
}

start();
