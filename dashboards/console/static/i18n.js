// Languages. The English text is the key; `zh.js` holds the Chinese. What the judge itself says stays English.
import { zh, zhFaults } from "./zh.js";

export const languages = { en: "English", zh: "中文" };
let language = localStorage.getItem("outrider-language") || (navigator.language.startsWith("zh") ? "zh" : "en");
if (!(language in languages)) language = "en";
document.documentElement.lang = language;

export const current = () => language;

export function choose(name) {
  language = name;
  localStorage.setItem("outrider-language", name);
  document.documentElement.lang = name;
}

/** The text in the reader's language; `{name}` is replaced by what `values` has. The judge's own words lose their underscores. */
export function t(text, values) {
  let said = (language === "zh" && zh[text]) || (text.includes(" ") ? text : text.replaceAll("_", " "));
  if (values) said = said.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
  return said;
}

/** One sentence for a fault class: the catalogue's, or its translation. */
export function faultText(key, faults) {
  if (language === "zh" && zhFaults[key]) return zhFaults[key];
  return (faults && faults[key] && faults[key].summary) || String(key || t("unknown"));
}
