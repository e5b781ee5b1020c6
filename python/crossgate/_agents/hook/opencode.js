// Asks crossgate on every prompt which skill fits, and adds the answer to the system prompt.
// Written by `crossgate hook install --agent opencode`; `uninstall` removes it.
import { spawn } from "node:child_process";

const COMMAND = ["crossgate", "hook", "opencode"];
const LIMIT_MS = 10_000;
const SESSIONS = 100;

// Resolves to the context to add, or to "" after any failure.
function ask(call) {
  return new Promise((resolve) => {
    let printed = "";
    const done = (text) => {
      clearTimeout(timer);
      resolve(text);
    };
    const child = spawn(COMMAND[0], COMMAND.slice(1), { stdio: ["pipe", "pipe", "ignore"] });
    const timer = setTimeout(() => {
      child.kill();
      done("");
    }, LIMIT_MS);
    child.on("error", () => done(""));
    child.stdin.on("error", () => {});
    child.stdout.on("data", (part) => (printed += part));
    child.on("close", () => {
      try {
        const { context } = JSON.parse(printed);
        done(typeof context === "string" ? context : "");
      } catch {
        done("");
      }
    });
    child.stdin.end(JSON.stringify(call));
  });
}

export const Crossgate = async ({ directory }) => {
  const told = new Map();
  return {
    "chat.message": async (input, output) => {
      const written = output.parts.filter((part) => part.type === "text" && !part.synthetic);
      const prompt = written.map((part) => part.text).join("\n");
      const context = await ask({ session_id: input.sessionID, cwd: directory, prompt });
      told.delete(input.sessionID);
      if (context) told.set(input.sessionID, context);
      if (told.size > SESSIONS) told.delete(told.keys().next().value);
    },
    "experimental.chat.system.transform": async (input, output) => {
      const context = told.get(input.sessionID);
      if (context) output.system.push(context);
    },
  };
};
