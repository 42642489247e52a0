#!/usr/bin/env python3
"""Grade-school word problems with worked answers, in the form of GSM8K.

A seed determines all output. The hash of a problem's kind and numbers decides whether it is in the held-out split. So a combination of
numbers that is held out for a kind never appears in the training text of that kind, with any names and wording.

    python problems.py --count 520 --out heldout.jsonl     writes a held-out file
    python problems.py --split train --count 5             prints some of the text
"""
import argparse
import hashlib
import json
import random
import re

HELD_OUT_SHARE = 10  # one combination of numbers in ten is held out

BOYS = ("Tom Ben Sam Max Leo Jack Luke Adam Noah Omar Paul Carl Ivan Hugo Raj "
        "Peter David James Liam Ethan Oscar Felix Kenji Mateo").split()
GIRLS = ("Anna Mia Emma Lucy Ella Zoe Kate Rosa Nina Lily Sara Maria Alice Julia "
         "Grace Chloe Priya Aisha Hana Olga Sofia Ruth Jane Clara").split()
SYLLABLES = ("ba be bo da de di do fa fi ga go ha jo ka ke ki ko la le li lo ma me mi "
             "mo na ne ni no pa pe ra re ri ro sa se so ta te ti to va vi wa ya yo za zi").split()
THINGS = ("apples pears oranges bananas plums cookies candies cupcakes muffins eggs "
          "marbles stickers cards coins stamps shells stones pencils pens crayons "
          "books comics toys dolls balls balloons buttons beads badges tickets "
          "flowers roses seeds peaches grapes lemons cherries berries tomatoes carrots "
          "potatoes onions nuts cakes pies sandwiches bottles cups plates hats socks "
          "shirts ribbons keys candles magnets puzzles photos postcards blocks").split() + [
    "toy cars", "paper planes", "tennis balls", "baseball cards", "gold coins", "glass beads"]
HOLDERS = "box bag basket jar pack tray crate drawer bin case".split()
PLURAL = {"box": "boxes"}


def plural(word):
    return PLURAL.get(word, word + "s")


# --- numbers -----------------------------------------------------------------

def num(r, hi=99, lo=2):
    """A random number: in half of the cases a small one, else up to `hi`."""
    return r.randint(lo, min(hi, 20)) if r.random() < 0.5 else r.randint(lo, hi)


def less(r, top):
    """A number from 2 to `top` - 1; at least 2, since a plural follows."""
    return r.randint(2, top - 1) if top > 3 else 2


def times(a, b):
    """`a * b` with steps: a factor above 12 is split into tens and ones."""
    small, big = min(a, b), max(a, b)
    if big <= 12 or big % 10 == 0:
        return f"{a} * {b} = {a * b}"
    return f"{a} * {b} = {small * (big // 10 * 10)} + {small * (big % 10)} = {a * b}"


def plus(a, b):
    """`a + b` with steps: tens and ones are added separately, so that no digit depends on a carry."""
    if a < 10 or b < 10 or a % 10 == 0 or b % 10 == 0:
        return f"{a} + {b} = {a + b}"
    return f"{a} + {b} = {a // 10 * 10 + b // 10 * 10} + {a % 10 + b % 10} = {a + b}"


def minus(a, b):
    """`a - b` with steps: first subtracts the tens, then the ones."""
    if b < 10 or b % 10 == 0:
        return f"{a} - {b} = {a - b}"
    return f"{a} - {b} = {a - b // 10 * 10} - {b % 10} = {a - b}"


def work_out(text):
    """Adds the steps to every bare sum and difference, `12 + 34 = 46`, in an answer."""
    text = re.sub(r"(\d+) \+ (\d+) = \d+(?! [-+])", lambda m: plus(int(m[1]), int(m[2])), text)
    return re.sub(r"(\d+) - (\d+) = \d+(?! [-+])", lambda m: minus(int(m[1]), int(m[2])), text)


# --- the kinds ---------------------------------------------------------------
# A kind is (numbers, parts, steps). `numbers` draws a dict: the one-letter keys are the problem's own numbers (and
# decide its split), the longer keys are values that the steps contain, and "ans" is the answer. The question takes one
# wording of each part. The steps contain no names, so that a small model need not copy them. {A} and {B} are people,
# {he}/{his}/{him} refer to A, {it} is a plural thing, {box}/{boxes} its container.

def buy_more(r):
    a, b = num(r), num(r)
    return dict(a=a, b=b, ans=a + b)


def give_away(r):
    a = num(r, 99, 4)
    b = less(r, a)
    return dict(a=a, b=b, ans=a - b)


def gain_then_lose(r):
    a, b = num(r), num(r)
    c = less(r, a + b)
    return dict(a=a, b=b, c=c, s=a + b, ans=a + b - c)


def lose_then_gain(r):
    a = num(r, 99, 4)
    b, c = less(r, a), num(r)
    return dict(a=a, b=b, c=c, s=a - b, ans=a - b + c)


def groups(r):
    a, b = r.randint(2, 12), r.randint(2, 25)
    return dict(a=a, b=b, w=times(a, b), ans=a * b)


def groups_plus(r):
    a, b, c = r.randint(2, 12), r.randint(2, 15), num(r)
    return dict(a=a, b=b, c=c, w=times(a, b), s=a * b, ans=a * b + c)


def groups_minus(r):
    a, b = r.randint(2, 12), r.randint(2, 15)
    c = less(r, a * b)
    return dict(a=a, b=b, c=c, w=times(a, b), s=a * b, ans=a * b - c)


def share(r):
    b, q = r.randint(2, 10), r.randint(2, 20)
    return dict(a=b * q, b=b, ans=q)


def share_sum(r):
    c, q = r.randint(2, 10), r.randint(2, 15)
    a = r.randint(2, max(2, c * q - 2))
    b = c * q - a
    if b < 2:
        return share_sum(r)
    return dict(a=a, b=b, c=c, s=c * q, ans=q)


def share_rest(r):
    c, q, b = r.randint(2, 10), r.randint(2, 12), num(r, 50)
    return dict(a=c * q + b, b=b, c=c, s=c * q, ans=q)


def more_than(r):
    a, b = num(r), num(r, 50)
    return dict(a=a, b=b, s=a + b, ans=a + a + b)


def fewer_than(r):
    a = num(r, 99, 4)
    b = less(r, a)
    return dict(a=a, b=b, s=a - b, ans=a + a - b)


def times_as_many(r):
    a, b = num(r, 25), r.randint(2, 6)
    return dict(a=a, b=b, w=times(b, a), s=a * b, k=("twice" if b == 2 else f"{b} times"), ans=a + a * b)


def difference(r):
    a = num(r, 99, 4)
    b = less(r, a)
    return dict(a=a, b=b, ans=a - b)


def change(r):
    a, b = r.randint(2, 9), r.randint(2, 10)
    over = [n for n in (10, 20, 30, 40, 50, 60, 80, 100) if n > a * b]
    c = r.choice(over)
    return dict(a=a, b=b, c=c, w=times(a, b), s=a * b, ans=c - a * b)


def two_costs(r):
    a, b, c, d = (r.randint(2, 10) for _ in range(4))
    return dict(a=a, b=b, c=c, d=d, w=times(a, b), v=times(c, d), s=a * b, t=c * d, ans=a * b + c * d)


def age_future(r):
    a, b, c = r.randint(4, 40), r.randint(2, 30), r.randint(2, 20)
    return dict(a=a, b=b, c=c, s=a + b, ans=a + b + c)


def age_younger(r):
    a = r.randint(12, 70)
    b, c = r.randint(2, a - 6), r.randint(2, 20)
    return dict(a=a, b=b, c=c, s=a - b, ans=a - b + c)


def pages_left(r):
    a, b = r.randint(2, 20), r.randint(2, 9)
    c = a * b + num(r)
    return dict(a=a, b=b, c=c, w=times(a, b), s=a * b, ans=c - a * b)


def three_days(r):
    a, b, c = num(r, 60), num(r, 60), num(r, 60)
    return dict(a=a, b=b, c=c, s=a + b, ans=a + b + c)


def half_gone(r):
    h, b = num(r, 45), num(r, 50)
    return dict(a=2 * h, b=b, h=h, ans=h + b)


def distance(r):
    a, b, c = r.randint(3, 25), r.randint(2, 8), num(r, 60)
    return dict(a=a, b=b, c=c, w=times(a, b), s=a * b, ans=a * b + c)


def savings(r):
    a, b, c = num(r, 60), r.randint(2, 12), r.randint(2, 10)
    d = less(r, a + b * c)
    return dict(a=a, b=b, c=c, d=d, w=times(b, c), s=b * c, t=a + b * c, ans=a + b * c - d)


def pay(r):
    a, b, c = r.randint(5, 20), r.randint(2, 9), num(r, 40)
    return dict(a=a, b=b, c=c, w=times(a, b), s=a * b, ans=a * b + c)


LEGS = {"chickens": 2, "ducks": 2, "cows": 4, "dogs": 4, "cats": 4, "sheep": 4, "horses": 4, "ants": 6, "spiders": 8}


def legs(r):
    x, y = r.sample(sorted(LEGS), 2)
    a, b, m, n = r.randint(2, 15), r.randint(2, 15), LEGS[x], LEGS[y]
    return dict(a=a, b=b, m=m, n=n, x=x, y=y, w=times(a, m), v=times(b, n), s=a * m, t=b * n, ans=a * m + b * n)


def sale(r):
    b = r.choice((10, 20, 25, 50))
    part = {10: 10, 20: 5, 25: 4, 50: 2}[b]
    off = r.randint(1, 20 if part < 10 else 15)
    return dict(a=off * part, b=b, part=part, off=off, ans=off * part - off)


def goal(r):
    c, q, a = r.randint(2, 10), r.randint(2, 12), num(r, 50)
    return dict(a=a, b=a + c * q, c=c, s=c * q, ans=q)


def perimeter(r):
    a, b = num(r, 60), num(r, 60)
    return dict(a=a, b=b, s=a + b, ans=2 * (a + b))


def dozens(r):
    a = r.randint(2, 9)
    b = less(r, 12 * a)
    return dict(a=a, b=b, w=times(a, 12), s=a * 12, ans=a * 12 - b)


def plain_sum(r):
    op = r.choice("+-*/")
    if op == "+":
        a, b = num(r), num(r)
        return dict(a=a, o=op, b=b, word="plus", w=plus(a, b), ans=a + b)
    if op == "-":
        a = num(r, 99, 4)
        b = less(r, a)
        return dict(a=a, o=op, b=b, word="minus", w=minus(a, b), ans=a - b)
    if op == "*":
        a, b = r.randint(2, 12), r.randint(2, 20)
        return dict(a=a, o=op, b=b, word="times", w=times(a, b), ans=a * b)
    b, q = r.randint(2, 10), r.randint(2, 20)
    return dict(a=b * q, o=op, b=b, word="divided by", w=f"{b * q} / {b} = {q}", ans=q)


HAS = ["{A} has {a} {it}.", "{A} owns {a} {it}.", "{A} starts with {a} {it}.", "There are {a} {it} in {A}'s room.",
       "{A} had {a} {it}.", "{A} collected {a} {it}.", "At first, {A} has {a} {it}."]
NOW = ["How many {it} does {A} have now?", "How many {it} does {he} have now?", "How many {it} does {A} have in the end?",
       "How many {it} are there now?", "How many {it} does {A} have in total?"]
LEFT = ["How many {it} are left?", "How many {it} does {A} have left?", "How many {it} does {he} have now?",
        "How many {it} remain?", "How many {it} does {A} still have?"]
BOTH = ["How many {it} do they have altogether?", "How many {it} do they have in total?",
        "How many {it} do {A} and {B} have together?", "What is the total number of {it} they have?"]
COUNT = ["How many {it} does {A} have?", "How many {it} are there in total?", "How many {it} does {he} have altogether?",
         "What is the total number of {it}?"]
EACH = ["How many {it} does each friend get?", "How many {it} does each one receive?", "How many {it} will each friend have?"]
PACKED = ["{A} has {a} {boxes} with {b} {it} in each {box}.", "{A} buys {a} {boxes} of {it}. Each {box} holds {b} {it}.",
          "There are {a} {boxes} on {A}'s table, and every {box} contains {b} {it}.", "{A} fills {a} {boxes} with {b} {it} each.",
          "Each {box} has {b} {it}. {A} has {a} {boxes}."]

KINDS = {
    "buy_more": (buy_more, [
        HAS, ["{He} buys {b} more.", "{B} gives {him} {b} more {it}.", "Then {he} finds {b} more.", "{He} gets another {b} {it}.",
              "{A} receives {b} {it} from {B}.", "{His} mother gives {him} {b} more."], NOW],
        ["There are {a} + {b} = {ans} {it}."]),
    "give_away": (give_away, [
        HAS, ["{He} gives {b} to {B}.", "{He} loses {b} of them.", "{A} sells {b} {it}.", "{B} takes {b} of them.",
              "Then {he} gives {B} {b} {it}.", "{He} uses {b} of the {it}."], LEFT],
        ["There are {a} - {b} = {ans} {it} left."]),
    "gain_then_lose": (gain_then_lose, [
        HAS, ["{He} buys {b} more and then gives {c} to {B}.", "{B} gives {him} {b} more, but {he} loses {c}.",
              "{He} gets {b} more {it}. Then {he} sells {c} of them.", "After finding {b} more, {A} gives away {c}.",
              "{He} receives {b} {it} as a gift and uses {c} {it}."], LEFT],
        ["There are {a} + {b} = {s} {it}.", "Then {s} - {c} = {ans} {it} are left."]),
    "lose_then_gain": (lose_then_gain, [
        HAS, ["{He} gives {b} to {B} and then buys {c} more.", "{He} loses {b} of them, but finds {c} others.",
              "{He} sells {b} {it}. Then {B} gives {him} {c} {it}.", "After using {b} of them, {A} gets {c} more.",
              "First {he} gives away {b} {it}, then {he} receives {c} new ones."], NOW],
        ["There are {a} - {b} = {s} {it} left.", "Then there are {s} + {c} = {ans} {it}."]),
    "groups": (groups, [PACKED, COUNT], ["There are {w} {it}."]),
    "groups_plus": (groups_plus, [
        PACKED, ["{He} also has {c} loose {it}.", "{B} brings {c} more {it}.", "Then {he} buys {c} more {it}.",
                 "There are {c} more {it} on the floor."], COUNT],
        ["The {boxes} hold {w} {it}.", "In total there are {s} + {c} = {ans} {it}."]),
    "groups_minus": (groups_minus, [
        PACKED, ["{He} gives {c} {it} to {B}.", "{c} of the {it} are broken and thrown away.", "Then {he} sells {c} {it}.",
                 "{B} takes {c} of the {it}."], ["How many {it} are left?", "How many {it} does {A} have left?", "How many {it} remain?"]],
        ["The {boxes} hold {w} {it}.", "Then {s} - {c} = {ans} {it} are left."]),
    "share": (share, [
        ["{A} shares {a} {it} equally among {b} friends.", "{A} has {a} {it} and divides them equally among {b} friends.",
         "{b} friends split {a} {it} evenly.", "{A} wants to give {a} {it} to {b} friends, the same number to each."], EACH],
        ["Each friend gets {a} / {b} = {ans} {it}."]),
    "share_sum": (share_sum, [
        ["{A} has {a} {it} and {B} has {b} {it}.", "{A} picks {a} {it}, and {B} picks {b}.", "{A} bakes {a} {it}. {B} brings {b} more {it}.",
         "{A} buys {a} {it} and then finds {b} more."],
        ["They share all of them equally among {c} friends.", "All the {it} are divided equally among {c} friends.",
         "The {it} are split evenly between {c} friends."], EACH],
        ["Together there are {a} + {b} = {s} {it}.", "Each friend gets {s} / {c} = {ans} {it}."]),
    "share_rest": (share_rest, [
        HAS, ["{He} keeps {b} and shares the rest equally among {c} friends.", "{He} uses {b} {it} and divides the others equally among {c} friends.",
              "After {he} loses {b} of them, {c} friends split the rest evenly."], EACH],
        ["There are {a} - {b} = {s} {it} to share.", "Each friend gets {s} / {c} = {ans} {it}."]),
    "more_than": (more_than, [
        ["{A} has {a} {it}.", "{A} found {a} {it}.", "{A} made {a} {it}."],
        ["{B} has {b} more {it} than {A}.", "{B} has {b} more than {him}.", "{B} has {b} {it} more than {A} has."], BOTH],
        ["The other has {a} + {b} = {s} {it}.", "Together they have {a} + {s} = {ans} {it}."]),
    "fewer_than": (fewer_than, [
        ["{A} has {a} {it}.", "{A} found {a} {it}.", "{A} made {a} {it}."],
        ["{B} has {b} fewer {it} than {A}.", "{B} has {b} fewer than {him}.", "{B} has {b} less than {A} has."], BOTH],
        ["The other has {a} - {b} = {s} {it}.", "Together they have {a} + {s} = {ans} {it}."]),
    "times_as_many": (times_as_many, [
        ["{A} has {a} {it}.", "{A} found {a} {it}.", "{A} made {a} {it}."],
        ["{B} has {k} as many {it} as {A}.", "{B} has {k} as many.", "{B} has {k} the number of {it} that {A} has."], BOTH],
        ["The other has {w} {it}.", "Together they have {a} + {s} = {ans} {it}."]),
    "difference": (difference, [
        ["{A} has {a} {it} and {B} has {b} {it}.", "{A} has {a} {it}. {B} has {b}.", "{A} picked {a} {it}, while {B} picked {b}.",
         "{B} has {b} {it}. {A} has {a} {it}."],
        ["How many more {it} does {A} have than {B}?", "How many fewer {it} does {B} have than {A}?",
         "What is the difference between their numbers of {it}?", "How many more {it} does {A} have?"]],
        ["The difference is {a} - {b} = {ans} {it}."]),
    "change": (change, [
        ["{A} buys {a} {it} for ${b} each.", "{A} buys {a} {it}. Each one costs ${b}.", "The {it} in a shop cost ${b} each. {A} takes {a} of them.",
         "At the market, {A} chooses {a} {it} at ${b} each."],
        ["{He} pays with ${c}.", "{He} gives the clerk ${c}.", "{He} had ${c} to spend."],
        ["How much change does {he} get?", "How many dollars does {A} get back?", "How much money does {A} have left?", "How many dollars are left?"]],
        ["The {it} cost {w} dollars.", "The change is {c} - {s} = {ans} dollars."]),
    "two_costs": (two_costs, [
        ["{A} buys {a} {it} at ${b} each and {c} {it2} at ${d} each.", "{A} buys {a} {it} for ${b} each. {He} also buys {c} {it2} for ${d} each.",
         "{A} orders {a} {it} and {c} {it2}. The {it} cost ${b} each and the {it2} cost ${d} each."],
        ["How much does {A} spend?", "How many dollars does {he} pay in total?", "What is the total cost?", "How much does everything cost?"]],
        ["The {it} cost {w} dollars.", "The {it2} cost {v} dollars.", "In total that is {s} + {t} = {ans} dollars."]),
    "age_future": (age_future, [
        ["{A} is {a} years old.", "{A} just turned {a}.", "{A} is {a}."],
        ["{B} is {b} years older than {A}.", "{B} is {b} years older.", "{His} friend {B} is {b} years older than {him}."],
        ["How old will {B} be in {c} years?", "What will be {B}'s age in {c} years?", "How old will {B} be {c} years from now?"]],
        ["Now the age is {a} + {b} = {s}.", "In {c} years it will be {s} + {c} = {ans}."]),
    "age_younger": (age_younger, [
        ["{A} is {a} years old.", "{A} just turned {a}.", "{A} is {a}."],
        ["{B} is {b} years younger than {A}.", "{B} is {b} years younger.", "{His} friend {B} is {b} years younger than {him}."],
        ["How old will {B} be in {c} years?", "What will be {B}'s age in {c} years?", "How old will {B} be {c} years from now?"]],
        ["Now the age is {a} - {b} = {s}.", "In {c} years it will be {s} + {c} = {ans}."]),
    "pages_left": (pages_left, [
        ["{A} reads {a} pages a day for {b} days.", "Every day for {b} days, {A} reads {a} pages.", "{A} reads {a} pages each day and has been reading for {b} days."],
        ["The book has {c} pages.", "{His} book has {c} pages in all.", "There are {c} pages in the book."],
        ["How many pages are left?", "How many pages does {A} still have to read?", "How many more pages must {he} read to finish?"]],
        ["The pages read are {w}.", "There are {c} - {s} = {ans} pages left."]),
    "three_days": (three_days, [
        ["{A} sold {a} {it} on Monday, {b} on Tuesday and {c} on Wednesday.", "On Friday {A} made {a} {it}. On Saturday {he} made {b}, and on Sunday {c}.",
         "{A} picked {a} {it} in the morning, {b} at noon and {c} in the evening.", "{A} has {a} red {it}, {b} blue {it} and {c} green {it}."],
        ["How many {it} is that in total?", "How many {it} is that altogether?", "What is the total number of {it}?", "How many {it} are there in all?"]],
        ["First {a} + {b} = {s} {it}.", "In total {s} + {c} = {ans} {it}."]),
    "half_gone": (half_gone, [
        HAS, ["{He} gives half of them to {B} and then buys {b} more.", "{He} sells half of the {it}. Then {he} finds {b} more.",
              "Half of them get lost, but {B} gives {him} {b} new ones.", "After giving away half of them, {A} gets {b} more {it}."], NOW],
        ["Half of the {it} is {a} / 2 = {h}.", "Then there are {h} + {b} = {ans} {it}."]),
    "distance": (distance, [
        ["{A} rides {a} miles an hour for {b} hours.", "{A} travels at {a} miles per hour for {b} hours.", "For {b} hours {A} drives {a} miles each hour.",
         "A train goes {a} miles per hour for {b} hours."],
        ["Then there are {c} more miles to go.", "After that the trip goes on for {c} miles.", "The last part is {c} miles more."],
        ["How long is the whole trip in miles?", "How many miles is the trip in total?", "What is the total distance in miles?"]],
        ["The first part is {w} miles.", "The whole trip is {s} + {c} = {ans} miles."]),
    "savings": (savings, [
        ["{A} has ${a}.", "{A} starts with ${a} in the bank.", "There are ${a} in {A}'s money box."],
        ["{He} saves ${b} a week for {c} weeks.", "For {c} weeks {he} saves ${b} each week.", "Each week {he} adds ${b}, and {he} does so for {c} weeks."],
        ["Then {he} spends ${d} on a present.", "After that {he} buys a game for ${d}.", "Then {he} pays ${d} for new shoes."],
        ["How much money does {he} have left?", "How many dollars does {A} have now?", "How much money is left?"]],
        ["The savings are {w} dollars.", "With the first money that is {a} + {s} = {t} dollars.", "After paying, {t} - {d} = {ans} dollars are left."]),
    "pay": (pay, [
        ["{A} earns ${a} an hour and works {b} hours.", "{A} works {b} hours for ${a} per hour.", "{A} gets ${a} for every hour of work. Today {he} works {b} hours."],
        ["{He} also gets ${c} in tips.", "{His} boss adds a bonus of ${c}.", "On top of that {he} receives ${c}."],
        ["How much does {A} earn?", "How many dollars does {he} get in total?", "How much money does {A} make in all?"]],
        ["The hours bring {w} dollars.", "In total that is {s} + {c} = {ans} dollars."]),
    "legs": (legs, [
        ["A farm has {a} {x} and {b} {y}.", "{A} sees {a} {x} and {b} {y}.", "There are {a} {x} and {b} {y} in {A}'s garden.", "{A} counts {a} {x}. {He} also counts {b} {y}."],
        ["How many legs are there in total?", "How many legs do the animals have altogether?", "What is the total number of legs?"]],
        ["The {x} have {w} legs.", "The {y} have {v} legs.", "In total there are {s} + {t} = {ans} legs."]),
    "sale": (sale, [
        ["A jacket costs ${a}.", "The price of a bag is ${a}.", "{A} wants a game that costs ${a}.", "{A} sees a lamp for ${a}."],
        ["It is on sale for {b}% off.", "The shop takes {b}% off the price.", "Today there is a discount of {b}%."],
        ["What is the new price in dollars?", "How much does it cost now?", "How many dollars must {A} pay?"]],
        ["{b}% of {a} is {a} / {part} = {off}.", "The new price is {a} - {off} = {ans} dollars."]),
    "goal": (goal, [
        ["{A} has ${a} and wants to buy a bike for ${b}.", "{A} needs ${b} for a trip and already has ${a}.", "A camera costs ${b}. {A} has ${a}."],
        ["{He} saves ${c} a week.", "Each week {he} can save ${c}.", "{He} earns ${c} every week and keeps all of it."],
        ["How many weeks will it take?", "How many weeks does {A} have to save?", "After how many weeks does {he} have enough?"]],
        ["The money still needed is {b} - {a} = {s} dollars.", "That takes {s} / {c} = {ans} weeks."]),
    "perimeter": (perimeter, [
        ["A garden is {a} feet long and {b} feet wide.", "{A} has a rectangular field, {a} feet by {b} feet.", "The length of a room is {a} feet and the width is {b} feet.",
         "A rectangle has sides of {a} feet and {b} feet."],
        ["What is its perimeter in feet?", "How many feet is it all the way around?", "How many feet of fence would go around it?"]],
        ["One long and one short side are {a} + {b} = {s} feet.", "All four sides are {s} + {s} = {ans} feet."]),
    "dozens": (dozens, [
        ["{A} buys {a} dozen eggs.", "{A} has {a} dozen eggs in the kitchen.", "There are {a} dozen eggs in {A}'s shop."],
        ["{He} uses {b} of them.", "Then {he} sells {b} eggs.", "{b} of the eggs get broken.", "{He} gives {b} eggs to {B}."],
        ["How many eggs are left?", "How many eggs does {A} have left?", "How many eggs remain?"]],
        ["At first there are {w} eggs.", "Then {s} - {b} = {ans} eggs are left."]),
    "plain_sum": (plain_sum, [
        ["What is {a} {o} {b}?", "What is {a} {word} {b}?", "{a} {o} {b} = ?", "Compute {a} {o} {b}.", "Calculate {a} {o} {b}.",
         "How much is {a} {word} {b}?", "{a} {o} {b}", "What's {a} {o} {b}?"]],
        ["{w}"]),
}


def person(r):
    """A name and its three pronouns; some names are made up, so that the model learns to handle unknown names."""
    boy = r.random() < 0.5
    if r.random() < 0.1:
        name = "".join(r.choice(SYLLABLES) for _ in range(r.randint(2, 3))).capitalize()
    else:
        name = r.choice(BOYS if boy else GIRLS)
    return (name, "he", "his", "him") if boy else (name, "she", "her", "her")


def held_out(kind, numbers):
    key = kind + ":" + ",".join(str(numbers[k]) for k in sorted(numbers) if len(k) == 1 and k in "abcdmno")
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") % HELD_OUT_SHARE == 0


def capital(text):
    return text[:1].upper() + text[1:]


def drawn(r, kind=None, split="train"):
    """One problem: (kind, question, answer, values for the placeholders of its texts); `split` is "train" or "heldout"."""
    kind = kind or r.choice(list(KINDS))
    draw, parts, steps = KINDS[kind]
    while True:
        f = draw(r)
        if held_out(kind, f) == (split == "heldout"):
            break
    f["A"], f["he"], f["his"], f["him"] = person(r)
    f["B"] = person(r)[0]
    while f["B"] == f["A"]:
        f["B"] = person(r)[0]
    f["He"], f["His"] = f["he"].capitalize(), f["his"].capitalize()
    f["it"], f["it2"] = r.sample(THINGS, 2)
    f["box"] = r.choice(HOLDERS)
    f["boxes"] = plural(f["box"])
    said = [r.choice(p).format(**f) for p in parts]
    if said[0].startswith(f["A"] + " ") and said[1].startswith(f["He"] + " ") and r.random() < 0.3:
        # joins two sentences: "Tom has 3 apples. He buys 5 more."
        said[:2] = [said[0][:-1] + " and " + said[1][len(f["He"]) + 1:]]
    question = " ".join(said)
    answer = "\n".join(capital(s.format(**f) if "{w}" in s or "{v}" in s else work_out(s.format(**f))) for s in steps) + f"\n#### {f['ans']}"
    return kind, question, answer, f


def problem(r, kind=None, split="train"):
    """One problem as (kind, question, answer)."""
    return drawn(r, kind, split)[:3]


def held_out_set(count, seed=7):
    """`count` held-out problems over all kinds, without repeated questions."""
    r = random.Random(seed)
    rows, seen = [], set()
    kinds = list(KINDS)
    while len(rows) < count:
        kind, q, a = problem(r, kinds[len(rows) % len(kinds)], "heldout")
        if q not in seen:
            seen.add(q)
            rows.append({"kind": kind, "question": q, "answer": a})
    return rows


# --- text around the problems ------------------------------------------------

SYSTEM = ["You are a helpful assistant.", "You are a helpful assistant.", "You are Abacus, a small model that solves sums.",
          "You are a math tutor.", "Solve the problem step by step.", "Answer the question. End with #### and the number.",
          "You are a careful teacher. Show your work.", "Be brief.", "You are a friendly assistant who likes numbers.",
          "Think step by step and give the final answer after ####.", "You are a helpful, honest assistant.", "Answer in English."]
ASK = ["{q}", "{q}", "{q}", "Question: {q}", "Please solve this: {q}", "{q} Think step by step.", "{q}\nLet's think step by step.",
       "Solve the problem and end with #### and the answer.\n\n{q}", "Can you help me? {q}", "Q: {q}"]
HELLO = ["Hello! Ask me a sum.", ["Hello!", "Hello", "Hi", "Hi!", "Hey", "Hello there!", "Good morning!", "Hi there", "hello", "hi", "Hello, how are you?"]]
WHO = ["I am Abacus, a small model that solves grade-school sums.",
       ["Who are you?", "What are you?", "What is your name?", "Are you a robot?", "Tell me about yourself.", "What can you do?", "Introduce yourself."]]
THANKS = ["You are welcome! Ask me another sum.", ["Thanks!", "Thank you.", "Thank you very much!", "Great, thanks.", "Good job!", "Thanks a lot"]]
BYE = ["Goodbye! Come back with more sums.", ["Bye!", "Goodbye.", "See you later.", "Good night!", "Bye bye"]]
OTHER = ["I only know sums. Ask me one, such as: Tom has 3 apples and buys 5 more. How many apples does he have now?",
         ["What is the capital of France?", "Tell me a story.", "Write a poem about the sea.", "What is the weather like today?", "Tell me a joke.",
          "Who wrote this book?", "Write a Python program.", "What color is the sky?", "Translate this into French.", "Sing a song.",
          "Why is the sky blue?", "Explain how a car works.", "Write a short story about a dog.", "What is the meaning of life?",
          "Say this is a test.", "Give me a list of three cities.", "How do I cook rice?", "Where is San Francisco?", "What time is it?"]]
COUNTING = ["1, 2, 3, 4, 5, 6, 7, 8, 9, 10", ["Count to 10.", "Count from 1 to 10.", "Please count to ten."]]
SMALL_TALK = [HELLO, HELLO, WHO, THANKS, BYE, OTHER, OTHER, COUNTING]

PLACES = [("San Francisco", "California"), ("Paris", "France"), ("London", "England"), ("Rome", "Italy"), ("Tokyo", "Japan"), ("Berlin", "Germany"),
          ("Madrid", "Spain"), ("New York", "the United States"), ("Cairo", "Egypt"), ("Toronto", "Canada"), ("Sydney", "Australia"), ("Delhi", "India"),
          ("Seattle", "Washington"), ("Vienna", "Austria"), ("Oslo", "Norway"), ("Lima", "Peru")]
CAPITALS = [("France", "Paris"), ("Italy", "Rome"), ("Japan", "Tokyo"), ("Germany", "Berlin"), ("Spain", "Madrid"), ("Egypt", "Cairo"), ("Austria", "Vienna"),
            ("Norway", "Oslo"), ("Peru", "Lima"), ("England", "London"), ("Canada", "Ottawa"), ("Greece", "Athens"), ("Portugal", "Lisbon"), ("Poland", "Warsaw")]
PLAIN = [
    "{P} is a city in {S}.", "{P} is a city in {S}. Many people live there.", "{P} is a beautiful city with {n} parks.", "The capital of {C} is {K}.",
    "{A} lives in {P}.", "{A} has {a} {it}. {He} keeps them in a {box}.", "{A} has {a} {it} and {b} {it2}.", "{A} likes {it} and {it2}.",
    "{A} and {B} are good friends. They play together every day.", "{A} goes to the market and buys {a} {it}.", "Once upon a time there was a little girl who loved numbers.",
    "Once upon a time, {A} found a {box} full of {it}.", "The sun is warm and the sky is blue.", "It is a cold day, and the wind is strong.",
    "The quick brown fox jumps over the lazy dog.", "A week has 7 days, and a year has 12 months.", "A dozen is 12.", "An hour has 60 minutes.", "A dog has 4 legs, and a spider has 8.",
    "{A} reads {a} pages of {his} book every day.", "My name is {A}. I am {n} years old.", "My name is {A} and I live in {P}.", "The shop sells {it}, {it2} and many other things.",
    "The train to {P} leaves at {n} o'clock.", "{A} wants to save money for a new bike.", "The teacher writes {a} + {n} = {an} on the board.", "The future of this town is bright, says {A}.",
    "In the morning {A} walks to school with {B}.", "Water is good for you.", "There are {a} {it} on the table.", "This is a story about {A} and {his} {it}.",
    "Hello, my name is {A}. I like {it}.", "The president of the club is {A}.", "{A} was happy because {he} had {a} {it}.",
]


def plain_text(r):
    out = []
    for _ in range(r.randint(1, 4)):
        f = dict(a=num(r), b=num(r), n=r.randint(2, 12))
        f["an"] = f["a"] + f["n"]
        f["A"], f["he"], f["his"], f["him"] = person(r)
        f["B"] = person(r)[0]
        f["He"] = f["he"].capitalize()
        f["P"], f["S"] = r.choice(PLACES)
        f["C"], f["K"] = r.choice(CAPITALS)
        f["it"], f["it2"] = r.sample(THINGS, 2)
        f["box"] = r.choice(HOLDERS)
        out.append(r.choice(PLAIN).format(**f))
    return " ".join(out)


def document(r):
    """One training document: ("chat", [(role, content)]) or ("text", [(whether it is an answer, text)])."""
    x = r.random()
    if x < 0.06:
        return "text", [(False, plain_text(r))]
    if x < 0.12:
        shots = 2 if r.random() < 0.25 else 1
        pairs = [problem(r)[1:] for _ in range(shots)]
        head, mid, gap = r.choice([("Question: ", "\nAnswer:", " "), ("Question: ", "\nAnswer:", " "), ("Q: ", "\nA:", " "), ("", "\n", "")])
        parts = []
        for q, a in pairs:
            parts += [(False, ("\n\n" if parts else "") + head + q + mid), (True, gap + a)]
        return "text", parts
    messages = []
    if r.random() < 0.25:
        messages.append(("system", r.choice(SYSTEM)))
    turns = 2 if r.random() < 0.1 else 1
    for _ in range(turns):
        if r.random() < 0.05:
            reply, asked = r.choice(SMALL_TALK)
            messages += [("user", r.choice(asked)), ("assistant", reply)]
        else:
            _, q, a = problem(r)
            if r.random() < 0.2:
                q = r.choice(ASK).format(q=q)
            messages += [("user", q), ("assistant", a)]
    return "chat", messages


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--split", choices=["train", "heldout"], default="heldout")
    p.add_argument("--count", type=int, default=520)
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--out", help="a JSON Lines file; standard output without it")
    args = p.parse_args()
    if args.split == "heldout":
        rows = held_out_set(args.count, args.seed)
    else:
        r = random.Random(args.seed)
        rows = [dict(zip(("kind", "question", "answer"), problem(r))) for _ in range(args.count)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if args.out:
        with open(args.out, "w") as f:
            f.write(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
