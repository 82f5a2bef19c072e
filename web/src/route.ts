/* Routes of the page: the fragment of its address, such as "#/run/2390e31546fb/log". */
import { useEffect, useState } from "preact/hooks";

export interface Route {
  page: string; // "runs", "run", …
  rest: string; // after the page, decoded: "2390e31546fb/log"
  query: URLSearchParams;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#?\/?/, "").split("?", 2);
  const slash = path.indexOf("/");

  return {
    page: decode(slash < 0 ? path : path.slice(0, slash)) || "runs",
    rest: slash < 0 ? "" : decode(path.slice(slash + 1)),
    query: new URLSearchParams(query),
  };
}

/* Address of a page; slashes and colons of `rest` stay readable. */
export function link(
  page: string,
  rest = "",
  query: Record<string, string | null | undefined> = {},
): string {
  const path = encodeURIComponent(rest)
    .replace(/%2F/g, "/")
    .replace(/%3A/g, ":")
    .replace(/%2C/g, ",");
  const words = Object.entries(query)
    .filter(([, value]) => value)
    .map(([name, value]) => `${name}=${encodeURIComponent(value!)}`);

  return `#/${page}${rest ? `/${path}` : ""}${words.length ? `?${words.join("&")}` : ""}`;
}

export function useRoute(): Route {
  const [hash, setHash] = useState(location.hash);

  useEffect(() => {
    const changed = () => setHash(location.hash);

    window.addEventListener("hashchange", changed);
    changed(); // the address may have changed since the first render
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  return parseRoute(hash);
}
