// Rerank with LangChain's JavaScript client for Cohere; answers what it understood, or what it raised.
import { CohereRerank } from "@langchain/cohere";
import { CohereClient } from "cohere-ai";

let read = "";
for await (const piece of process.stdin) read += piece;
const { url, calls } = JSON.parse(read);

async function call({ query, documents, ...fields }) {
  const client = new CohereClient({ token: "none", environment: url });
  const reranker = new CohereRerank({ client, ...fields });
  try {
    const results = await reranker.rerank(documents, query);
    const asDocuments = documents.map((pageContent) => ({ pageContent, metadata: {} }));
    const compressed = await reranker.compressDocuments(asDocuments, query);
    return {
      results: results.map((each) => [each.index, each.relevanceScore]),
      documents: compressed.map((each) => each.pageContent),
    };
  } catch (error) {
    return { raised: error.constructor.name, status: error.statusCode, body: error.body };
  }
}

const answers = [];
for (const each of calls) answers.push(await call(each));
process.stdout.write(JSON.stringify(answers));
