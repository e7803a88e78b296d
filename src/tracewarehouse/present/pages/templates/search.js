// Search over the names on a page, and what the page knows about one of them.
(() => {
  const dialog = document.getElementById('search'), field = dialog.querySelector('input'), list = document.getElementById('found');
  const about = document.getElementById('about'), status = document.getElementById('status');
  const figures = [...document.querySelectorAll('figure.timeline')];
  // Of the names of a table, else of a column.
  const KINDS = { kernel_summary: 'kernel', kernels: 'kernel', op_summary: 'operator', operators: 'operator', modules: 'module', annotation_breakdown: 'annotation',
    name: 'name', kernel: 'kernel', op: 'operator', op_name: 'operator', module_path: 'module', api: 'call', category: 'category' };
  const ORDER = ['finding', 'kernel', 'operator', 'module'], MOST = 30;
  const full = cell => cell.dataset.full ?? cell.textContent;
  // As names of slices are shortened.
  const cut = name => name.length > 160 ? `${name.slice(0, 80)} … ${name.slice(-80)}` : name;
  const make = (parent, kind, text, attributes = {}) => {
    const made = Object.assign(document.createElement(kind), attributes);
    made.textContent = text;
    parent.append(made);
    return made;
  };

  // Name → kind, rows of tables, other elements; it is made when it is first needed.
  let index = null;
  const entries = () => {
    if (index) return index;
    index = new Map();
    const add = (name, kind, what, element) => {
      const entry = index.get(name) ?? { name, kind, rows: [], elements: [] };
      if (ORDER.includes(kind) && !ORDER.includes(entry.kind)) entry.kind = kind;
      if (element) entry[what].push(element);
      index.set(name, entry);
    };
    for (const each of document.querySelectorAll('.verdict .answer strong, .findings strong')) add(each.textContent, 'finding', 'elements', each);
    for (const table of document.querySelectorAll('main table[data-name]:not([data-name=check])'))
      for (const row of table.tBodies[0].rows) for (const cell of row.cells) {
        const name = full(cell);
        if (cell.className === 'n' || name.length < 4) continue;
        const sql = table.tHead.rows[0].cells[cell.cellIndex].dataset.sql;
        if (KINDS[sql]) add(name, (sql === 'name' && KINDS[table.dataset.name]) || KINDS[sql], 'rows', row);
      }
    for (const each of document.querySelectorAll('.tree b')) add(each.textContent, 'module', 'elements', each);
    const known = new Set([...index.keys()].map(cut));
    for (const figure of figures) for (const name of figure.timeline.names) if (name && !known.has(name)) add(name, 'slice');
    return index;
  };

  const matches = words => {
    const parts = words.toLowerCase().split(/\s+/).filter(Boolean), rank = entry => (ORDER.indexOf(entry.kind) + ORDER.length + 1) % (ORDER.length + 1);
    return [...entries().values()].filter(entry => parts.every(part => entry.name.toLowerCase().includes(part)))
      .sort((a, b) => rank(a) - rank(b) || b.rows.length - a.rows.length).slice(0, MOST);
  };
  let shown = [], at = 0;
  const select = to => {
    at = Math.max(0, Math.min(to, shown.length - 1));
    [...list.children].forEach((item, place) => item.setAttribute('aria-selected', place === at));
    field.setAttribute('aria-activedescendant', shown.length ? `found-${at}` : '');
    list.children[at]?.scrollIntoView({ block: 'nearest' });
  };
  const search = () => {
    shown = matches(field.value);
    list.replaceChildren();
    shown.forEach((entry, place) => {
      const item = make(list, 'li', entry.name, { id: `found-${place}`, role: 'option' });
      make(item, 'small', entry.kind);
      item.addEventListener('click', () => { dialog.close(); open(entry); });
    });
    dialog.querySelector('.none').hidden = shown.length > 0;
    select(0);
  };
  const start = () => { if (!dialog.open) dialog.showModal(); field.select(); search(); };

  const reach = element => {
    for (let each = element; each; each = each.parentElement) if (each.tagName === 'DETAILS') each.open = true;
    element.scrollIntoView({ block: 'center' });
  };
  // A click at the slice keeps its details, with its operator, below the timeline.
  const reveal = name => {
    for (const figure of figures) {
      const found = figure.timeline.names.has(cut(name)) && figure.timeline.reveal(cut(name));
      if (!found) continue;
      figure.querySelector('canvas').dispatchEvent(new MouseEvent('click', { clientX: found.x, clientY: found.y }));
      figure.scrollIntoView({ block: 'start' });
      return figure.querySelector('.pinned').firstChild?.textContent ?? '';
    }
    return '';
  };
  function open(entry) {
    if (entry.kind === 'finding') { reach(entry.elements[0]); return; }
    about.replaceChildren();
    const head = make(about, 'p', '');
    make(head, 'b', entry.name);
    make(head, 'small', ` ${entry.kind} `);
    const close = make(head, 'button', 'Close', { type: 'button', className: 'close' });
    close.addEventListener('click', () => { about.hidden = true; });
    const slice = reveal(entry.name);
    if (slice) make(about, 'p', `Longest slice on the timeline: ${slice}`);
    else if (entry.elements.length) reach(entry.elements[0]);
    const rows = make(about, 'ul', '');
    for (const row of entry.rows.slice(0, 12)) {
      const table = row.closest('table'), heads = table.tHead.rows[0].cells;
      const values = [...row.cells].map((cell, place) => full(cell) === entry.name ? '' : `${heads[place].textContent} ${cell.textContent}`);
      const item = make(rows, 'li', '');
      const link = make(item, 'button', table.getAttribute('aria-label'), { type: 'button' });
      item.append(` ${values.filter(Boolean).join(', ')}`);
      link.addEventListener('click', () => { row.hidden = false; reach(row); });
    }
    about.hidden = false;
    about.focus({ preventScroll: true });
    status.textContent = `${entry.name}: ${entry.rows.length} rows`;
  }

  field.addEventListener('input', search);
  field.addEventListener('keydown', event => {
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') { event.preventDefault(); select(at + (event.key === 'ArrowDown' ? 1 : -1)); }
    if (event.key === 'Enter' && shown[at]) { event.preventDefault(); dialog.close(); open(shown[at]); }
  });
  document.getElementById('find').addEventListener('click', start);
  addEventListener('keydown', event => {
    if (event.key === 'Escape' && !dialog.open) about.hidden = true;
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea')) return;
    event.preventDefault();
    start();
  });
  // Names in tables, bars and trees lead to the same.
  addEventListener('click', event => {
    const cell = event.target.closest?.('main td:not(.n)'), label = event.target.closest?.('.cards svg [aria-label]')?.getAttribute('aria-label') ?? '';
    const leaf = event.target.closest?.('.tree b');
    const entry = cell || leaf ? entries().get(cell ? full(cell) : leaf.textContent)
      : label && [...entries().values()].filter(each => label.startsWith(`${each.name}: `)).sort((a, b) => b.name.length - a.name.length)[0];
    if (entry && entry.kind !== 'finding') open(entry);
  });
})();
