package main

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"strconv"

	"github.com/cilium/statedb"
	"github.com/cilium/statedb/index"
	"github.com/cilium/statedb/lpm"
	"github.com/cilium/statedb/part"
)

type plain struct {
	ID     uint64
	Key    string
	Prefix netip.Prefix
	Tags   part.Set[string]
}

func (*plain) TableHeader() []string  { return []string{"ID"} }
func (row *plain) TableRow() []string { return []string{strconv.FormatUint(row.ID, 10)} }

var plainByID = statedb.Index[*plain, uint64]{
	Name:       "id",
	FromObject: func(row *plain) index.KeySet { return index.NewKeySet(index.Uint64(row.ID)) },
	FromKey:    index.Uint64,
	Unique:     true,
}

var plainByTag = statedb.Index[*plain, string]{
	Name:       "tags",
	FromObject: func(row *plain) index.KeySet { return index.Set(row.Tags) },
	FromKey:    index.String,
}

// plainTable runs the database's worker, which drops delete markers. The returned function ends it.
func plainTable(secondary ...statedb.Indexer[*plain]) (*statedb.DB, statedb.RWTable[*plain], func()) {
	db := statedb.New(statedb.WithMetrics(&statedb.NopMetrics{}))
	table, err := statedb.NewTable(db, "plain", plainByID, secondary...)
	must(err)
	must(db.Start())
	return db, table, func() { must(db.Stop()) }
}

type prefixed struct {
	ID     uint16
	Prefix netip.Prefix
	Port   uint16
}

func (prefixed) TableHeader() []string  { return []string{"Prefix"} }
func (row prefixed) TableRow() []string { return []string{row.Prefix.String()} }

var prefixedByPrefix = statedb.NetIPPrefixIndex[prefixed]{
	Name:       "prefix",
	FromObject: func(row prefixed) iter.Seq[netip.Prefix] { return statedb.Just(row.Prefix) },
	Unique:     true,
}

func prefixedTable() (*statedb.DB, statedb.RWTable[prefixed]) {
	db := statedb.New()
	table, err := statedb.NewTable(db, "lpm",
		statedb.Index[prefixed, uint16]{
			Name:       "id",
			FromObject: func(row prefixed) index.KeySet { return index.NewKeySet(index.Uint16(row.ID)) },
			FromKey:    index.Uint16,
			Unique:     true,
		},
		prefixedByPrefix,
		statedb.LPMIndex[prefixed]{
			Name: "port",
			FromObject: func(row prefixed) iter.Seq2[[]byte, lpm.PrefixLen] {
				return statedb.Just2(binary.BigEndian.AppendUint16(nil, row.Port), lpm.PrefixLen(16))
			},
			Unique: true,
		},
	)
	must(err)
	return db, table
}

func addresses(count int) []netip.Addr {
	made := make([]netip.Addr, count)
	for i := range made {
		made[i] = netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(i))))
	}
	return made
}

func prefixedRow(id int, address netip.Addr) prefixed {
	return prefixed{ID: uint16(id), Prefix: netip.PrefixFrom(address, 32), Port: uint16(id)}
}
