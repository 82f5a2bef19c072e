/* Shell of the page: header, banner of the connection, and the page that the address names. */
import { Component, render, type ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { connectionNow, onConnection, retryNow } from "./api";
import { onAnnounce } from "./announce";
import { BucketsPage } from "./buckets";
import { ComparePage } from "./compare";
import { Failure, useTick } from "./parts";
import { usePoll } from "./poll";
import { type Route, useRoute } from "./route";
import { RunPage } from "./run";
import { RunnersPage } from "./runners";
import { RunsPage } from "./runs";
import { applyTheme, toggleTheme, useTheme } from "./theme";
import type { About } from "./types";

const PAGES: [string, string, string[]][] = [
  ["runs", "Runs", ["runs", "run", "compare"]],
  ["runners", "Runners", ["runners"]],
  ["buckets", "Buckets", ["buckets"]],
];

/* Shows the failure of a page in its place. Without this class, the whole document would become
 * empty. */
class Guard extends Component<{ children: ComponentChildren }, { failure: string | null }> {
  state = { failure: null as string | null };

  componentDidCatch(error: unknown) {
    this.setState({ failure: error instanceof Error ? error.message : String(error) });
  }
  render() {
    return this.state.failure ? (
      <section class="page">
        <Failure text={`the page failed: ${this.state.failure}`} />
        <button type="button" onClick={() => this.setState({ failure: null })}>
          Show the page again
        </button>
      </section>
    ) : (
      this.props.children
    );
  }
}

function Banner() {
  const [connection, setConnection] = useState(connectionNow());

  useEffect(() => onConnection(() => setConnection(connectionNow())), []);
  useTick(connection.lost);
  if (connection.refused)
    return (
      <div class="banner" role="alert">
        The session is missing or has ended. Open the link that penstock ui printed.
      </div>
    );
  if (!connection.lost) return null;
  const seconds = Math.max(0, Math.ceil((connection.retryAt - Date.now()) / 1000));
  return (
    <div class="banner" role="alert">
      <span>
        There is no connection to penstock ui.{" "}
        <span aria-hidden="true">Next try in {seconds} s.</span>
      </span>
      <button type="button" onClick={retryNow}>
        Try now
      </button>
    </div>
  );
}

/* Reports changes to screen readers. */
function Announcer() {
  const [text, setText] = useState("");

  useEffect(() => onAnnounce(setText), []);
  return (
    <div class="hidden" aria-live="polite">
      {text}
    </div>
  );
}

function Header({ route, about }: { route: Route; about: About | null }) {
  const theme = useTheme();
  const other = theme === "dark" ? "light" : "dark";

  return (
    <header class="top">
      <a href="#/runs" class="brand" aria-label="penstock">
        <img src="icon.svg" alt="" width="22" height="22" />
        <span>penstock</span>
      </a>
      <nav aria-label="Pages">
        {PAGES.map(([page, label, members]) => (
          <a
            key={page}
            href={`#/${page}`}
            aria-current={members.includes(route.page) ? "page" : undefined}
          >
            {label}
          </a>
        ))}
      </nav>
      <span class="quiet host" title={about?.home ?? undefined}>
        {about?.host ?? ""} {about?.version ?? ""}
        {about?.readOnly ? " (read only)" : ""}
      </span>
      <button
        type="button"
        class="plain"
        onClick={toggleTheme}
        aria-label={`Use ${other} colours`}
        title={`Use ${other} colours`}
      >
        {theme === "dark" ? "☀" : "☾"}
      </button>
    </header>
  );
}

function Page({ route, about }: { route: Route; about: About | null }) {
  if (route.page === "run")
    return <RunPage key={route.rest.split("/")[0]} route={route} about={about} />;
  if (route.page === "compare") return <ComparePage key={route.rest} route={route} />;
  if (route.page === "runners") return <RunnersPage about={about} />;
  if (route.page === "buckets") return <BucketsPage route={route} about={about} />;
  if (route.page === "runs") return <RunsPage about={about} />;
  return (
    <section class="page">
      <h1>There is no such page</h1>
      <p>
        <a href="#/runs">All runs</a>
      </p>
    </section>
  );
}

/* "/" focuses the first filter of the page. */
function onKey(event: KeyboardEvent): void {
  const target = event.target as Element;
  const typing = target.closest("input, textarea, select, [contenteditable]");

  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || typing) return;
  if (document.querySelector("dialog[open]")) return;
  const filter = document.querySelector<HTMLInputElement>("[data-filter]");

  if (!filter) return;
  event.preventDefault();
  filter.focus();
  filter.select();
}

function Shell() {
  const route = useRoute();
  const about = usePoll<About>("reach the server", "/api/about", 60_000);

  useEffect(() => {
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  useEffect(() => {
    const name = PAGES.find(([, , members]) => members.includes(route.page))?.[1] ?? "";

    document.title = name ? `${name} – penstock` : "penstock";
  }, [route.page]);

  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          // The fragment of the address names the page, so "#main" must not become the fragment.
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        Skip to the content
      </a>
      <Header route={route} about={about.data} />
      <Banner />
      <main id="main" tabIndex={-1}>
        <Guard key={route.page}>
          <Page route={route} about={about.data} />
        </Guard>
      </main>
      <Announcer />
    </>
  );
}

applyTheme();
const root = document.getElementById("page")!;
root.textContent = "";
render(<Shell />, root);
