// Tables: the data behind a chart, and the raw tables; filled when they are opened, saved as CSV.

let tables = {};  // name -> {columns: [{name, unit, description}], rows: values of each column}

function csv({columns, rows}) {
  const field = value => {
    let text = String(value ?? "").replaceAll("\n", ", ");
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text) && isNaN(text)) text = `'${text}`; // else a formula
    return /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return new Blob([[columns, ...rows].map(row => row.map(field).join(",")).join("\r\n") + "\r\n"], {type: "text/csv"});
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function tableOf(columns, rows, titles = []) {
  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  columns.forEach((column, i) => {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = column;
    if (titles[i]) cell.title = titles[i];
    head.append(cell);
  });
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const value of row) {
      const cell = line.insertCell();
      cell.textContent = value ?? "";
      if (typeof value === "number") cell.className = "number";
    }
  }
  return table;
}

// --- raw tables ------------------------------------------------------------------------------------

function chosenTable(name) {
  const {columns, rows: values} = tables[name];
  const rows = values[0].map((_, i) => values.map(of => of[i]));
  const at = FILTERS.map(filter => [filter, columns.findIndex(column => column.name === filter)]);
  const about = row => Object.fromEntries(at.map(([filter, i]) => [filter, row[i]]));
  return {columns: columns.map(column => column.name), rows: rows.filter(row => isChosen(about(row)))};
}

function fillRawTable(details) {
  const name = details.dataset.table;
  if (!tables[name]) return;  // they come after the charts
  const {columns, rows} = chosenTable(name);
  const heads = tables[name].columns.map(({name, unit}) => unit ? `${name} [${unit}]` : name);
  const meanings = tables[name].columns.map(column => column.description);
  details.querySelector(".wide").replaceChildren(tableOf(heads, rows, meanings));
  const all = tables[name].rows[0].length;
  details.querySelector("output").textContent = rows.length < all ? `${rows.length} of ${all} rows chosen. ` : "";
}

// --- data of a chart -------------------------------------------------------------------------------

const MOST_ROWS = 500;  // shown; the download has all

function fillChartTable(details) {
  const {columns, rows} = chartData(details.dataset.chart);
  const place = details.querySelector(".wide");
  place.replaceChildren(tableOf(columns, rows.slice(0, MOST_ROWS)));
  if (rows.length > MOST_ROWS) place.append(`The first ${MOST_ROWS} of ${rows.length} rows; the CSV file has all.`);
}

function fillOpenTables() {
  for (const details of document.querySelectorAll("details[data-table][open]")) fillRawTable(details);
  for (const details of document.querySelectorAll("details[data-chart][open]")) fillChartTable(details);
}
