// A transform of asc: AssemblyScript cannot name an export `state-version`, as the contract does.

export default class {
  afterCompile(module) {
    for (const file of this.program.filesByName.values()) {
      const found = file.exports?.get("state_version");
      if (found && file.internalName.endsWith("assembly/aggregator")) {
        module.removeExport("state_version");
        module.addFunctionExport(found.internalName, "state-version");
      }
    }
  }
}
