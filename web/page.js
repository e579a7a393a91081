// Functions that all pages and the dashboard share: numbers as people read them, searching, sorting, elements, the tip under
// the pointer. It comes before the script of a page. Texts are never put in as HTML.
'use strict';
var brimPage = (function () {
  var doc = document;

  //-------------------------------- numbers --------------------------------

  // Halves round away from zero, as in brim's own texts (brim_shown): for toFixed and toPrecision.
  function rounded(value) { return value * (1 + 2 * Number.EPSILON); }
  // "0.001", "1e-8", "12,345"; a dash when unknown.
  function number(value, digits) {
    if (typeof value !== 'number' || !isFinite(value)) return '\u2013';
    var size = Math.abs(value);
    if (size !== 0 && (size < 1e-4 || size >= 1e7)) {
      return Number(rounded(value).toPrecision(3)).toExponential().replace('e+', 'e');
    }
    return size >= 1e4 ? Number(rounded(value).toFixed(0)).toLocaleString('en') : String(Number(rounded(value).toPrecision(digits)));
  }
  // "91.20 %" of a share, with so many decimals.
  function percent(value, digits) { return rounded(value * 100).toFixed(digits) + ' %'; }
  // "1.5 GiB", rounded as brim_format_bytes does.
  function bytes(value) {
    var units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'], i = 0;
    if (value >= 1024) { value = rounded(value / 1024); i++; }
    while (value >= 1023.95 && i < units.length - 1) { value /= 1024; i++; }  // 1023.95 would be 1024.0
    return (i ? value.toFixed(1) : Math.round(value)) + ' ' + units[i];
  }

  //-------------------------------- searching --------------------------------

  // True if a text has a word. A setting that ends with a digit is a whole number: "lr=0.01" does not find "lr=0.012".
  function hasWord(text, word) {
    var whole = word.includes('=') && /[0-9]$/.test(word);
    for (var at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
      if (!whole || !/[0-9.e]/.test(text.charAt(at + word.length))) return true;
    }
    return false;
  }

  //-------------------------------- elements --------------------------------

  // A colour or a length of the style sheet: css('--ink').
  function css(name) { return getComputedStyle(doc.documentElement).getPropertyValue(name).trim(); }
  function byId(id) { return doc.getElementById(id); }
  function list(root, query) { return Array.from(root.querySelectorAll(query)); }
  function make(tag, text, kind) {
    var element = doc.createElement(tag);
    if (text !== undefined && text !== null) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  }
  // Sorts the rows of a table by a column; unknown values stay at the end. valueAt(row, column): {n: number or NaN, t: text}.
  function sortTable(table, rows, column, down, valueAt) {
    var sign = down ? -1 : 1, keys = rows.map(function (row, i) {
      var value = valueAt(row, column);
      return { row: row, n: value.n, t: value.t, i: i };
    });
    var words = keys.every(function (k) { return isNaN(k.n); });
    keys.sort(function (a, b) {
      if (words) return sign * a.t.localeCompare(b.t) || a.i - b.i;
      if (isNaN(a.n) || isNaN(b.n)) return isNaN(a.n) - isNaN(b.n) || a.i - b.i;
      return sign * (a.n - b.n) || a.i - b.i;
    }).forEach(function (k) { table.tBodies[0].appendChild(k.row); });
    list(table, 'thead th').forEach(function (head, i) {
      if (i === column) head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
  }

  //-------------------------------- the tip --------------------------------

  // Shows a text beside the pointer, in the element of id "tip".
  function showTip(text, x, y) {
    var tip = byId('tip');
    tip.textContent = text;
    tip.hidden = false;
    var box = tip.getBoundingClientRect(), wide = doc.documentElement.clientWidth;
    tip.style.left = Math.max(4, Math.min(x + 14, wide - box.width - 4)) + 'px';
    tip.style.top = (y - box.height - 12 > 4 ? y - box.height - 12 : y + 18) + 'px';
  }
  function hideTip() { byId('tip').hidden = true; }

  return {
    rounded: rounded, number: number, percent: percent, bytes: bytes, hasWord: hasWord, css: css, byId: byId, list: list,
    make: make, sortTable: sortTable, showTip: showTip, hideTip: hideTip
  };
})();
