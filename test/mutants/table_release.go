package main

// Mutants of the release.
func init() {
	add(mutant{
		rule: "modules of different versions do not compile together",
		file: "test/release/release.go",
		old:  `return r.replace(name, guardName+"Devel", guardName+identifier(r.version))`,
		new:  `return r.replace(name, guardName+"Devel", guardName+"Devel")`,
		test: "test/release TestRelease",
	})
	add(mutant{
		rule: "a released command knows its commit",
		file: "cmd/dlock/version.go",
		old:  `v.Commit = cmp.Or(v.Commit, releasedCommit)`,
		new:  `v.Commit = cmp.Or(v.Commit, "")`,
		test: "test/release TestRelease",
	})
	add(mutant{
		rule: "a release says what it changes",
		file: "test/release/changelog.go",
		old:  `case strings.TrimSpace(changes) == "":`,
		new:  `case changes == version:`,
		test: "test/release TestChangelog",
	})
	add(mutant{
		rule: "a store that is left out of the build is named",
		file: "cmd/dlock/internal/stores/stores.go",
		old:  `case kinds[i].open == nil:`,
		new:  `case kinds[i].scheme == "":`,
		test: "test/release TestCommandWithOneStore",
	})
}
