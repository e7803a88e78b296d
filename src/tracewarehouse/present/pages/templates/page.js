'use strict';
// The variable-length integers of a base64 text.
const numbersOf = text => {
  const bytes = atob(text), numbers = [];
  for (let at = 0; at < bytes.length;) {
    let value = 0, scale = 1, byte;
    do { byte = bytes.charCodeAt(at++); value += (byte & 127) * scale; scale *= 128; } while (byte > 127);
    numbers.push(value);
  }
  return numbers;
};
(() => {
  const root = document.documentElement, tip = document.getElementById('tip'), status = document.getElementById('status');
  const dark = () => root.dataset.theme ? root.dataset.theme === 'dark'
    : matchMedia('(prefers-color-scheme: dark)').matches;
  document.getElementById('theme').addEventListener('click', () => {
    root.dataset.theme = dark() ? 'light' : 'dark';
  });
  // The rows of each table, from its columns: a number has its place in the order, a name may have a short one.
  const known = JSON.parse(document.getElementById('names').textContent);
  for (const data of document.querySelectorAll('tbody script')) {
    const body = data.parentElement, made = [];
    for (const { texts, order, names, rows } of JSON.parse(data.textContent)) (texts ?? rows).forEach((text, at) => {
      const cell = (made[at] ??= document.createElement('tr')).insertCell();
      if (order) { cell.className = 'n'; cell.dataset.v = order[at]; cell.textContent = text; return; }
      const [short, full] = names[text].map(each => known[each]);
      cell.textContent = short;
      if (full) cell.dataset.full = cell.title = full;
      else if (short.length > 40) cell.title = short;
    });
    body.replaceChildren(...made);
  }
  // The entire name behind a short one.
  const full = cell => cell.dataset.full ?? cell.textContent;
  const value = (row, at) => {
    const cell = row.cells[at], number = cell.dataset.v;
    return number === undefined ? full(cell) : number === '' ? null : Number(number);
  };
  for (const head of document.querySelectorAll('th button')) {
    head.addEventListener('click', () => {
      const th = head.parentElement, table = th.closest('table'), body = table.tBodies[0];
      const down = th.getAttribute('aria-sort') ? th.getAttribute('aria-sort') === 'ascending' : th.className === 'n';
      for (const other of th.parentElement.children) other.removeAttribute('aria-sort');
      th.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const at = th.cellIndex, way = down ? -1 : 1;
      const order = (left, right) => {
        const a = value(left, at), b = value(right, at);
        if (a === null || b === null) return (a === null) - (b === null);
        return way * (typeof a === 'number' ? a - b : a.localeCompare(b));
      };
      body.append(...[...body.rows].sort(order));
    });
  }
  for (const field of document.querySelectorAll('.tools input[type=search]')) {
    const table = document.getElementById(field.getAttribute('aria-controls'));
    field.addEventListener('input', () => {
      const words = field.value.toLowerCase();
      const rows = [...table.tBodies[0].rows];
      for (const row of rows) row.hidden = ![...row.cells].map(full).join('\n').toLowerCase().includes(words);
      table.closest('details').querySelector('.none').hidden = rows.some(row => !row.hidden);
    });
  }
  const copy = async text => {
    try { await navigator.clipboard.writeText(text); return true; } catch { return false; }
  };
  for (const button of document.querySelectorAll('button[data-copy]')) {
    button.addEventListener('click', async () => {
      const done = await copy(button.dataset.copy);
      if (!done) getSelection().selectAllChildren(button.nextElementSibling);
      status.textContent = done ? 'copied' : 'selected; press Ctrl+C to copy';
      button.textContent = done ? 'Copied' : 'Selected';
      setTimeout(() => { button.textContent = 'Copy'; }, 1500);
    });
  }
  // Cards lie below each other without holes, in reading order.
  for (const cards of document.querySelectorAll('.cards:not(.cards-1)')) {
    const pack = () => {
      cards.classList.remove('packed');
      const heights = [...cards.children].map(card => card.offsetHeight);
      cards.classList.add('packed');
      heights.forEach((height, at) => { cards.children[at].style.gridRowEnd = `span ${Math.ceil(height / 4)}`; });
    };
    let width = 0;
    new ResizeObserver(() => { if (cards.clientWidth !== width) { width = cards.clientWidth; pack(); } }).observe(cards);
  }
  const show = event => {
    const mark = event.target.closest?.('svg [aria-roledescription="mark"],svg [aria-label][role="graphics-symbol"]');
    const words = mark && !mark.getAttribute('aria-roledescription')?.includes('axis') && mark.getAttribute('aria-label');
    tip.hidden = !words;
    if (!words) return;
    tip.textContent = words;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 12, innerWidth - width - 8)) + 'px';
    tip.style.top = Math.max(4, event.clientY - height - 12) + 'px';
  };
  for (const kind of ['pointermove', 'pointerdown']) document.addEventListener(kind, show);
  addEventListener('scroll', () => { tip.hidden = true; }, { passive: true });
  addEventListener('beforeprint', () => { for (const each of document.querySelectorAll('details')) each.open = true; });
})();
