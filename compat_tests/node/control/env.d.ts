// Of Node.js, what the programs here use.
declare const process: { argv: string[] };
