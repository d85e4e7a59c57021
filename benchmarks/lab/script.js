"use strict";

const form = document.getElementById("experiment");
const element = id => document.getElementById(id);
let controller = null;

// showErrors writes each error below its field.
function showErrors(errors) {
	for (const place of document.querySelectorAll("p.error[id^='error-']")) {
		const name = place.id.slice("error-".length);
		place.textContent = errors[name] || "";
		const input = name && form.elements[name];
		if (input instanceof HTMLElement) input.setAttribute("aria-invalid", name in errors);
	}
	showFields();
	const first = document.querySelector("p.error:not(:empty)");
	if (first) first.scrollIntoView({block: "center"});
}

// showFields hides the fields of other kinds of failure.
function showFields() {
	for (const field of document.querySelectorAll("[data-kinds]")) {
		field.hidden = !field.dataset.kinds.split(" ").includes(form.elements.failure.value) && !field.querySelector(".error").textContent;
	}
}

function show(event) {
	if (event.errors) showErrors(event.errors);
	if (event.url) history.replaceState(null, "", event.url);
	if (event.progress) element("progress").value = event.progress;
	if (event.failed) element("failed").textContent = event.failed;
	if (event.result) {
		element("result").innerHTML = event.result;
		element("verdict").scrollIntoView();
	}
	return event.errors || event.failed || event.result;
}

// lines yields the lines of a response as they arrive.
async function* lines(response) {
	let rest = "";
	for (const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();;) {
		const {done, value} = await reader.read();
		if (done) break;
		const parts = (rest + value).split("\n");
		rest = parts.pop();
		yield* parts;
	}
}

async function run() {
	if (controller) controller.abort();
	const own = controller = new AbortController();
	const busy = is => {
		for (const id of ["progress", "stop"]) element(id).hidden = !is;
	};
	showErrors({});
	const body = new URLSearchParams(new FormData(form));
	element("failed").textContent = element("result").innerHTML = "";
	element("progress").value = 0;
	busy(true);
	let ended = false;
	try {
		const response = await fetch("/run", {method: "POST", body, signal: own.signal});
		if (!(response.headers.get("Content-Type") || "").startsWith("application/x-ndjson")) throw new Error(await response.text());
		for await (const line of lines(response)) ended = show(JSON.parse(line)) || ended;
		if (!ended) throw new Error("The run ended without a result.");
	} catch (error) {
		if (!own.signal.aborted) element("failed").textContent = error.message;
	}
	if (controller === own) busy(false);
}

form.elements.failure.addEventListener("change", showFields);
form.addEventListener("submit", event => {
	event.preventDefault();
	run();
});
element("again").addEventListener("click", () => {
	form.elements.seed.value = Math.floor(Math.random() * 1e6);
	run();
});
element("stop").addEventListener("click", () => controller.abort());
showErrors(Object.fromEntries([...document.querySelectorAll("p.error[id^='error-']:not(:empty)")].map(e => [e.id.slice(6), e.textContent])));
