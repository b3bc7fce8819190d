package world

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// register is something that one client alone changes, and asks for: what it may be by now. An attempt that was not answered
// may have been carried out, or be so later, as long as the process lives that it was sent to.
type register struct {
	c    *client
	what string
	may  []string
	late []lateWrite
}

type lateWrite struct {
	value   string
	process *process
}

// wrote notes an attempt to set value that was sent to p. What was sent to processes before p cannot come later.
func (r *register) wrote(value string, p *process, answered bool) {
	r.c.tracef("%s becomes %s, answered %t", r.what, value, answered)
	if answered {
		r.may = r.may[:0]
		r.late = slices.DeleteFunc(r.late, func(l lateWrite) bool { return l.process != p })
	} else {
		r.late = append(r.late, lateWrite{value, p})
	}
	r.may = append(r.may, value)
}

// read judges what was answered.
func (r *register) read(value string) {
	for _, l := range r.late {
		r.may = append(r.may, l.value)
	}
	if !slices.Contains(r.may, value) {
		r.c.w.fail("%s: %s: it is %s, acknowledged or under way are %v", r.what, r.c.name, value, r.may)
	}
	r.may = append(r.may[:0], value)
	kept := r.late[:0]
	for _, l := range r.late {
		if l.process == r.c.w.process {
			kept = append(kept, l)
		} else {
			r.may = append(r.may, l.value) // it may have come before that process died
		}
	}
	r.late = kept
}

// attempt sends a request once; certain is false if its outcome is not known. p is what it was sent to.
func (c *client) attempt(req kmsg.Request, version int16) (resp kmsg.Response, p *process) {
	c.connected()
	p = c.link.server.p
	return c.ask(req, version), p
}

// startOperators starts those who do what administrators do.
func (w *World) startOperators() {
	w.startClient("offsets", true, (*client).runOffsets)
	w.startClient("configs", true, (*client).runConfigs)
	w.startClient("features", true, (*client).runFeatures)
	w.startProducer("terminator", (*client).runTerminator)
	w.startTrimmed()
}

// keptGroup has no members: its offsets are set, deleted, set by transactions, and the group is deleted.
const keptGroup = "kept"

func (c *client) runOffsets() {
	w := c.w
	r := &register{c: c, what: "committed offset", may: []string{"-1"}}
	for n := int64(1); n <= 24; n++ {
		switch w.IntN(5) {
		case 0, 1:
			c.commitOffset(r, n)
		case 2:
			c.deleteOffset(r)
		case 3:
			c.deleteGroup(r)
		default:
			c.commitInTransaction(r, n)
		}
		if w.chance(60) {
			r.read(strconv.FormatInt(c.committedOf(keptGroup, "in", 0), 10))
		}
		c.sleep(w.Int64N(1200 * msInUs))
	}
	r.read(strconv.FormatInt(c.committedOf(keptGroup, "in", 0), 10))
}

func (c *client) commitOffset(r *register, n int64) {
	resp, to := c.attempt(memberlessCommit(keptGroup, n), 8)
	if resp != nil {
		if code := resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
			c.unexpected("OffsetCommit", code)
		}
	}
	r.wrote(strconv.FormatInt(n, 10), to, resp != nil)
}

// deleteOffset reports whether the offset is gone for sure.
func (c *client) deleteOffset(r *register) (gone bool) {
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = keptGroup
	req.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "in", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}
	resp, to := c.attempt(req, 0)
	if resp != nil {
		switch code := resp.(*kmsg.OffsetDeleteResponse).ErrorCode; code {
		case 0, kerr.GroupIDNotFound.Code:
		default:
			c.unexpected("OffsetDelete", code)
		}
	}
	r.wrote("-1", to, resp != nil)
	return resp != nil
}

func (c *client) deleteGroup(r *register) {
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = []string{keptGroup}
	resp, to := c.attempt(req, 2)
	if resp != nil {
		switch code := resp.(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode; code {
		case 0, kerr.GroupIDNotFound.Code:
		default:
			c.unexpected("DeleteGroups", code)
		}
	}
	r.wrote("-1", to, resp != nil)
}

// commitInTransaction lets a transaction set the offset, which may be deleted meanwhile: then it does not come back.
func (c *client) commitInTransaction(r *register, n int64) {
	w := c.w
	s := &session{c: c, id: c.name, rank: 1, v2: true, current: func() bool { return true }}
	s.takeID()
	tx := w.beginTransaction(fmt.Sprintf("%s-%d", c.name, n))
	to := c.w.process
	if !s.offsets(member{group: keptGroup, generation: -1}, []*cursor{{partition: 0, offset: n}}) {
		r.wrote(strconv.FormatInt(n, 10), to, false) // its end may still come
		s.takeID()
		return
	}
	tried := w.chance(40)
	deleted := tried && c.deleteOffset(r)
	commit := w.chance(75)
	if !s.end(tx, commit) {
		r.wrote(strconv.FormatInt(n, 10), c.w.process, false)
		s.takeID()
		return
	}
	if commit && !deleted {
		r.wrote(strconv.FormatInt(n, 10), c.w.process, true)
		if tried { // without an answer: it may have come before the end
			r.may = append(r.may, "-1")
		}
	}
}

// setting is a configuration that is changed, and what it may be set to.
type setting struct {
	kind        kmsg.ConfigResourceType
	resource    string
	name        string
	standard    string
	values      []string
	beside      [2]string // what AlterConfigs, which sets all, has to give as well
	incremental bool      // only
}

// afterMaxSetting lets the wall clock jump back behind a batch's time.
var afterMaxSetting = [2]string{"message.timestamp.after.max.ms", "9223372036854775807"}

var settings = []setting{
	{kmsg.ConfigResourceTypeTopic, "plain", "compression.type", "producer", []string{"uncompressed", "snappy", "lz4", "zstd", "gzip"}, afterMaxSetting, false},
	{kmsg.ConfigResourceTypeTopic, "in", "max.message.bytes", "1048588", []string{"900000", "1000000", "2000000"}, afterMaxSetting, false},
	{kmsg.ConfigResourceTypeGroupConfig, keptGroup, "consumer.assignment.interval.ms", "300", []string{"0", "7000", "15000"}, [2]string{}, true},
}

// runConfigs changes settings, while clients write what they bear upon, and asks for them.
func (c *client) runConfigs() {
	w := c.w
	var registers []*register
	for _, s := range settings {
		first := s.standard
		if s.resource == "plain" {
			first = w.mode.codec
		}
		registers = append(registers, &register{c: c, what: s.name, may: []string{first}})
	}
	for range 24 {
		i := w.IntN(len(settings))
		s, r := &settings[i], registers[i]
		value, remove := s.values[w.IntN(len(s.values))], w.chance(25)
		if remove {
			value = s.standard
		}
		w.alteredUs = w.nowUs
		req, version := s.alter(value, remove), int16(1)
		if !s.incremental && w.chance(40) {
			req, version = s.alterAll(value), 2
		}
		resp, to := c.attempt(req, version)
		if resp != nil {
			code := int16(0)
			switch a := resp.(type) {
			case *kmsg.AlterConfigsResponse:
				code = a.Resources[0].ErrorCode
			case *kmsg.IncrementalAlterConfigsResponse:
				code = a.Resources[0].ErrorCode
			}
			if code != 0 {
				c.unexpected("AlterConfigs", code)
			}
		}
		r.wrote(value, to, resp != nil)
		if i = w.IntN(len(settings)); w.chance(60) {
			registers[i].read(c.described(&settings[i]))
		}
		c.sleep(w.Int64N(1200 * msInUs))
	}
	for i, r := range registers {
		r.read(c.described(&settings[i]))
	}
}

// settingsMoved reports whether a batch that is answered now may have been judged under other settings than one before it.
func (w *World) settingsMoved() bool { return w.alteredUs > 0 && w.nowUs < w.alteredUs+modernDoubtUs }

func (s *setting) alter(value string, remove bool) kmsg.Request {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = s.kind, s.resource
	one := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	if one.Name, one.Value = s.name, &value; remove {
		one.Op, one.Value = kmsg.IncrementalAlterConfigOpDelete, nil
	}
	res.Configs = append(res.Configs, one)
	req.Resources = append(req.Resources, res)
	return req
}

func (s *setting) alterAll(value string) kmsg.Request {
	req := kmsg.NewPtrAlterConfigsRequest()
	res := kmsg.NewAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = s.kind, s.resource
	for _, pair := range [][2]string{{s.name, value}, s.beside} {
		one := kmsg.NewAlterConfigsRequestResourceConfig()
		one.Name, one.Value = pair[0], kmsg.StringPtr(pair[1])
		res.Configs = append(res.Configs, one)
	}
	req.Resources = append(req.Resources, res)
	return req
}

// described asks what a setting is.
func (c *client) described(s *setting) string {
	resp, _ := c.insist(func() kmsg.Request {
		req := kmsg.NewPtrDescribeConfigsRequest()
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName, res.ConfigNames = s.kind, s.resource, []string{s.name}
		req.Resources = append(req.Resources, res)
		return req
	}, 4)
	r := resp.(*kmsg.DescribeConfigsResponse).Resources[0]
	if r.ErrorCode != 0 || len(r.Configs) != 1 || r.Configs[0].Value == nil {
		c.w.fail("codec: %s: the settings of %s are %+v", c.name, s.resource, r)
	}
	return *r.Configs[0].Value
}

// runFeatures moves the transaction version, while transactions of both kinds run.
func (c *client) runFeatures() {
	w := c.w
	r := &register{c: c, what: "feature level", may: []string{"2"}}
	for range 8 {
		level := w.IntN(3)
		req := kmsg.NewPtrUpdateFeaturesRequest()
		u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		u.Feature, u.MaxVersionLevel, u.UpgradeType = "transaction.version", int16(level), 2
		req.FeatureUpdates = append(req.FeatureUpdates, u)
		resp, to := c.attempt(req, 1)
		if resp != nil && resp.(*kmsg.UpdateFeaturesResponse).ErrorCode != 0 {
			c.unexpected("UpdateFeatures", resp.(*kmsg.UpdateFeaturesResponse).ErrorCode)
		}
		r.wrote(strconv.Itoa(level), to, resp != nil)
		c.sleep(w.Int64N(1200 * msInUs))
		r.read(c.transactionVersion())
		c.sleep(w.Int64N(3 * secondInUs))
	}
}

// transactionVersion is what clients are told of it.
func (c *client) transactionVersion() string {
	resp, _ := c.insist(func() kmsg.Request {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "sim", "1"
		return req
	}, 4)
	for _, f := range resp.(*kmsg.ApiVersionsResponse).FinalizedFeatures {
		if f.Name == "transaction.version" {
			return strconv.Itoa(int(f.MaxVersionLevel))
		}
	}
	return "0"
}
