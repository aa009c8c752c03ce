// Passthrough: what a message costs without any work.
import { transformer } from "weir-udf";

export const { configure, transform } = transformer(() => ({ transform: (_, out) => out.forward() }));
