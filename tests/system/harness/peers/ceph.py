"""A Ceph cluster of one monitor, one object daemon in memory and one radosgw, without systemd."""
import uuid

from .daemons import Daemons, free_port, program

CONFIG = """\
[global]
fsid = {fsid}
mon_host = [v2:{address}:{mon_port}/0]
public_addr = {address}
cluster_addr = {address}
keyring = {folder}/keyring
auth_allow_insecure_global_id_reclaim = false
run_dir = {folder}
admin_socket = {folder}/$cluster-$name.$pid.asok
log_file = {folder}/$name.log
mon_cluster_log_file = {folder}/cluster.log
crash_dir = {folder}
debug_ms = 0
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_allow_pool_delete = true
mon_data = {folder}/mon
mon_data_avail_crit = 1
mon_max_pg_per_osd = 1000
osd_data = {folder}/osd
osd_objectstore = memstore
memstore_device_bytes = {memory}
osd_heartbeat_grace = 120
osd_class_load_list = *
osd_class_default_list = *

[client.rgw]
rgw_frontends = beast endpoint={address}:{rgw_port}
rgw_data = {folder}/rgw
rgw_enable_ops_log = false
rgw_enable_usage_log = false
rgw_gc_obj_min_wait = 5
rgw_gc_processor_period = 10
"""
MEMORY = 6 << 30
CAPABILITIES = {
    "mon.": {"mon": "allow *"},
    "client.admin": {"mon": "allow *", "osd": "allow *", "mgr": "allow *", "mds": "allow *"},
    "client.rgw": {"mon": "allow rwx", "osd": "allow rwx"},
    "osd.0": {"mon": "allow profile osd", "osd": "allow *"},
}


class Ceph(Daemons):
    kind = "radosgw"

    def __init__(self, keep_process=lambda pid: None):
        self.programs = {
            name: program(name, package)
            for name, package in {
                "ceph-mon": "ceph-mon", "ceph-osd": "ceph-osd", "radosgw": "radosgw", "ceph": "ceph-common",
                "monmaptool": "ceph-common", "ceph-authtool": "ceph-common", "radosgw-admin": "radosgw",
            }.items()
        }  # fmt: skip
        super().__init__("ceph", keep_process)
        try:
            self.begin()
        except BaseException:
            self.stop()
            raise

    def begin(self):
        mon_port, self.port = free_port(self.address), free_port(self.address)
        fsid = str(uuid.uuid4())
        self.config = self.folder / "ceph.conf"
        self.keyring = self.folder / "keyring"
        self.config.write_text(
            CONFIG.format(fsid=fsid, address=self.address, folder=self.folder, mon_port=mon_port, rgw_port=self.port, memory=MEMORY)
        )
        for name in ("mon", "osd", "rgw"):
            (self.folder / name).mkdir()
        monmap = self.folder / "monmap"
        self.call(self.programs["monmaptool"], "--create", "--addv", "a", f"[v2:{self.address}:{mon_port}/0]", "--fsid", fsid, monmap)
        for name, capabilities in CAPABILITIES.items():
            options = [word for service, caps in capabilities.items() for word in ("--cap", service, caps)]
            create = [] if self.keyring.exists() else ["--create-keyring"]
            self.call(self.programs["ceph-authtool"], *create, self.keyring, "--gen-key", "--name", name, *options)
        self.ceph("ceph-mon", "--mkfs", "--id", "a", "--monmap", monmap, "--keyring", self.keyring)
        self.daemon("ceph-mon", "mon.a", "--id", "a")
        self.wait_for_port("mon.a", mon_port)
        self.ceph("ceph", "osd", "new", str(uuid.uuid4()))
        self.ceph("ceph-osd", "--id", "0", "--mkfs", "--osd-uuid", self.osd_uuid())
        self.ceph("ceph", "osd", "crush", "add", "osd.0", "1.0", "root=default")
        self.daemon("ceph-osd", "osd.0", "--id", "0")
        self.daemon("radosgw", "client.rgw", "--name", "client.rgw")
        self.wait_for_port("client.rgw", self.port)
        self.ceph(
            "radosgw-admin", "user", "create", "--uid=tester", "--display-name=tester", f"--access-key={self.access_key}",
            f"--secret-key={self.secret_key}",
        )  # fmt: skip

    def ceph(self, name, *arguments):
        return self.call(self.programs[name], "--conf", self.config, *arguments)

    def osd_uuid(self):
        import json

        return json.loads(self.ceph("ceph", "osd", "dump", "--format=json"))["osds"][0]["uuid"]

    def daemon(self, name, label, *arguments):
        return self.start(label, [self.programs[name], "--conf", self.config, "-f", *arguments])
