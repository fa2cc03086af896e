package main

// Mutants of the release, of packaging and of the examples.
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
		old:  `case openers[url.Scheme] == nil:`,
		new:  `case url.Scheme == "":`,
		test: "test/release TestCommandWithOneStore",
	})
	add(mutant{
		rule: "a machine that comes second is no failure of the service",
		file: "packaging/systemd/nightly-report.service",
		old:  `-n -E 0 --min-hold`,
		new:  `-n --min-hold`,
		test: "test/examples TestServiceOfSystemd",
	})
	add(mutant{
		rule: "an order is read again after its row has the token",
		file: "examples/charge/main.go",
		old:  "isPaid(ctx, tx, order); err != nil || paid {",
		new:  "isPaid(ctx, tx, order); err != nil || paid && order == 0 {",
		test: "test/examples TestChargeBesideALateCommit",
	})
}
