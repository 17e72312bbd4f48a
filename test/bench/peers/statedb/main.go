// Measures github.com/cilium/statedb with the workloads below and prints one JSON line a figure:
//
//	{"case":"write-100","value":812.4,"unit":"ns/row"}
//
// The TypeScript side (test/bench/statedb-*.ts, reconciler-*.ts) measures the same workloads under the same names, so this table is
// the contract of both. They follow the module's own benchmarks (benchmarks_test.go, lpm_index_test.go, reconciler/benchmark).
//
// Rows of "plain" tables: id (unsigned), key (text), prefix, tags (set of texts); unset fields are empty. Primary key: id as 8 bytes,
// big endian, unique. Every write stores a new object. Rows of "lpm" tables: id, prefix (IPv4, /32, address = id), port (= id); primary
// key: id; two unique longest-prefix indexes: prefix (32 bits) and port (16 bits). Upstream leaves every port at 0/0 under its unique
// index, which a unique index that is enforced must refuse: hence the distinct ports. Rows of "work" tables: id and, on this side,
// the reconciler's status.
//
//	case           | table, indexes      | one round                                                        | figure
//	write-1        | plain               | a transaction that stores id 123                                 | ns/row
//	write-100      | plain               | a transaction that stores ids 0..99                              | ns/row
//	write-1000     | plain               | a transaction that stores ids 0..999                             | ns/row
//	write-100-tags | plain + tags        | as write-100; not-unique index, every row has the one tag "test" | ns/row
//	write-100-lpm  | lpm                 | as write-100                                                     | ns/row
//	read           | plain + tags, empty | a read transaction, opened (and closed where there is such)      | ns
//	lookup         | plain, ids 0..999   | a read transaction, 1,000 gets by prepared keys, shuffled        | ns/row
//	iterate        | plain, ids 0..99999 | a read transaction, all rows in order of id, each id checked     | ns/row
//	visit          |                     | the same, where there are two ways to iterate                    | ns/row
//	changes        | plain               | store ids 0..999, take them from the change stream, delete all,  |
//	               |                     | take the deletes; the stream's watch is awaited in between       | ns/row
//	lpm-get        | lpm, ids 0..9999    | 10,000 longest-prefix gets by prepared whole addresses           | ns/row
//	propagation    | two of plain        | store ids 0..9 in A, await A's watch, open a watch on all of B,  | us, p50
//	               |                     | take A's rows since the last round, store them in B, await it    | and p99
//	load           | plain               | 1,000,000 rows in transactions of 1,000: ids in ascending order; | ns/row,
//	               |                     | after one pass over all rows: bytes live, less those before      | B/row
//	load-shuffled  | plain               | the same rows with their ids shuffled                            | ns/row
//	reconcile-100k | work                | a running reconciler (1,000 rows and 1,000 rounds/s at most, an  |
//	               |                     | operation that counts) while 100,000 rows are stored in          |
//	               |                     | transactions of 1,000, until the last row is done                | rows/s
//	reconcile-1m   | work                | as reconcile-100k with 1,000,000 rows, and the bytes after       | rows/s,
//	               |                     | collection with rows, statuses and reconciler live               | B/row
//
// A figure is the median of several runs in one process, after warm-up and a collection.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
)

var cases = []struct {
	name string
	run  func()
}{
	{"write-1", writeOne},
	{"write-100", func() { writeMany("write-100", 100) }},
	{"write-1000", func() { writeMany("write-1000", 1000) }},
	{"write-100-tags", writeTagged},
	{"write-100-lpm", writePrefixes},
	{"read", openRead},
	{"lookup", lookUp},
	{"iterate", func() { iterate("iterate") }},
	{"visit", func() { iterate("visit") }},
	{"changes", followChanges},
	{"lpm-get", getPrefixes},
	{"propagation", propagate},
	{"load", loadAscending},
	{"load-shuffled", loadShuffled},
	{"reconcile-100k", reconcileSome},
	{"reconcile-1m", reconcileMany},
}

func report(name string, value float64, unit string) {
	line, err := json.Marshal(struct {
		Case  string  `json:"case"`
		Value float64 `json:"value"`
		Unit  string  `json:"unit"`
	}{name, value, unit})
	must(err)
	fmt.Println(string(line))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	only := flag.String("case", "", "the case to run; all without it")
	flag.Parse()
	names := make([]string, 0, len(cases))
	for _, c := range cases {
		names = append(names, c.name)
	}
	if *only != "" && !slices.Contains(names, *only) {
		fmt.Fprintf(os.Stderr, "%q is not a case; cases: %s\n", *only, strings.Join(names, ", "))
		os.Exit(2)
	}
	for _, c := range cases {
		if *only == "" || *only == c.name {
			c.run()
		}
	}
}
