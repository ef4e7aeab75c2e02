// Call a server with clients that check its replies; answers what they understood, or what they raised.
import { createRequire } from "node:module";
import path from "node:path";
import { createCohere } from "@ai-sdk/cohere";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { InferenceClient } from "@huggingface/inference";

let read = "";
for await (const piece of process.stdin) read += piece;
const { url, embedder, reranker, classifier, texts, query } = JSON.parse(read);

const require = createRequire(import.meta.url);
const theirs = require(path.join(path.dirname(require.resolve("cohere-ai")), "serialization"));

// What Cohere's own client parses replies by; it leaves the checks out by itself.
async function cohere(route, schema, body) {
  const reply = await fetch(url + route, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  const told = await reply.json();
  return schema.parseOrThrow(told, { unrecognizedObjectKeys: "fail" });
}

const vercel = createCohere({ baseURL: `${url}/v2`, apiKey: "none" });
const compatible = createOpenAICompatible({ name: "sie", baseURL: `${url}/v1`, apiKey: "none" });
const hub = (model) => new InferenceClient("none").endpoint(`${url}/tei/${model}`);
const calls = {
  vercelEmbed: () => vercel.textEmbeddingModel(embedder).doEmbed({ values: texts }),
  vercelRerank: () =>
    vercel.rerankingModel(reranker).doRerank({ query, documents: { type: "text", values: texts } }),
  compatibleEmbed: () => compatible.textEmbeddingModel(embedder).doEmbed({ values: texts }),
  hubEmbed: () => hub(embedder).featureExtraction({ inputs: texts }),
  hubSimilarity: () =>
    hub(embedder).sentenceSimilarity({ inputs: { source_sentence: query, sentences: texts } }),
  hubClasses: () =>
    hub(classifier).zeroShotClassification({ inputs: [query], parameters: { candidate_labels: texts } }),
  cohereTypes: () =>
    cohere("/v2/embed", theirs.EmbedByTypeResponse, {
      model: embedder, texts, input_type: "search_query",
      embedding_types: ["float", "int8", "uint8", "binary", "ubinary", "base64"],
    }),
  coherePlain: () => cohere("/v1/embed", theirs.EmbedResponse, { model: embedder, texts }),
  cohereRerank: () =>
    cohere("/v2/rerank", theirs.V2RerankResponse, { model: reranker, query, documents: texts }),
};

const answers = {};
for (const [name, call] of Object.entries(calls)) {
  try {
    answers[name] = await call();
  } catch (error) {
    answers[name] = { raised: `${error.constructor.name}: ${error.message} ${JSON.stringify(error.errors ?? "")}` };
  }
}
process.stdout.write(JSON.stringify(answers));
